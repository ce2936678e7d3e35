"""``out=`` against torch: values written, strides, and refused types."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp
from tests.functional.reference import same

torch = pytest.importorskip("torch")

SEQUENCES = {
    "arange": lambda T, out: T.arange(0, 4, out=out),
    "linspace": lambda T, out: T.linspace(0, 3, 4, dtype=out.dtype, out=out),
    "logspace": lambda T, out: T.logspace(0, 3, 4, dtype=out.dtype, out=out),
}
REFUSED = {
    "a complex one": lambda T: T.floor(T.ones(2), out=T.zeros(2, dtype=T.complex64)),
    "a wider one": lambda T: T.neg(T.ones(2), out=T.zeros(2, dtype=T.float64)),
    "floats for truth": lambda T: T.isposinf(T.ones(2), out=T.zeros(2)),
    "floats for all": lambda T: T.all(T.ones(2), out=T.zeros(())),
    "floats for indices": lambda T: T.max(T.ones(2), 0, out=(T.zeros(()), T.zeros(()))),
    "wider values beside indices": lambda T: T.sort(T.ones(2), out=(T.zeros(2).double(), T.zeros(2).long())),
    "another dtype than asked for": lambda T: T.zeros(2, dtype=T.int64, out=T.zeros(2)),
}
TAKEN = {
    "bytes for all": lambda T: T.all(T.ones(2), out=T.zeros((), dtype=T.uint8)),
    "ints for a sum": lambda T: T.sum(T.tensor([1.5, 2.5]), 0, out=T.zeros((), dtype=T.int64)),
    "the absolute value": lambda T: T.abs(T.tensor([3 + 4j]), out=T.zeros(1)),
    "a wider product": lambda T: T.mul(T.ones(2), 2, out=T.zeros(2, dtype=T.float64)),
}


@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_fill_a_part_of_another_tensor(name: str, dtype: str) -> None:
    def program(T: Any) -> Any:
        whole = T.zeros(2, 3, dtype=getattr(T, dtype))
        SEQUENCES[name](T, whole.narrow(1, 1, 2))
        return whole

    same(program)


@pytest.mark.parametrize("case", REFUSED)
def test_types_that_cannot_receive_a_result_are_refused(case: str) -> None:
    for T in (torch, tracecomp):
        with pytest.raises(RuntimeError):
            REFUSED[case](T)


@pytest.mark.parametrize("case", TAKEN)
def test_types_that_can_receive_a_result(case: str) -> None:
    same(TAKEN[case])


DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64"]
FILLED = {
    "arange": lambda T, x, out: T.arange(0, 4, out=out),
    "range": lambda T, x, out: T.range(0, 4, out=out),
    "linspace": lambda T, x, out: T.linspace(0, 3, 4, out=out),
    "logspace": lambda T, x, out: T.logspace(0, 3, 4, out=out),
    "clamp": lambda T, x, out: T.clamp(x, 1, 2, out=out),
    "clamp by floats": lambda T, x, out: T.clamp(x, max=1.5, out=out),
    "clamp by tensors": lambda T, x, out: T.clamp(x, T.ones(3), out=out),
    "clamp_min": lambda T, x, out: T.clamp_min(x, 1, out=out),
    "add": lambda T, x, out: T.add(x, 1, out=out),
    "sum": lambda T, x, out: T.sum(x, 0, out=out),
    "exp": lambda T, x, out: T.exp(x, out=out),
    "neg": lambda T, x, out: T.neg(x, out=out),
    "where": lambda T, x, out: T.where(T.tensor([True, False, True]), x, x, out=out),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "complex64"])
@pytest.mark.parametrize("name", FILLED)
def test_each_type_of_out_is_taken_or_refused_alike(name: str, dtype: str) -> None:
    def taken(T: Any, into: str) -> str:
        x = T.tensor([1, 2, 3]).to(getattr(T, dtype))
        try:
            return str(FILLED[name](T, x, T.empty(0, dtype=getattr(T, into))).dtype).split(".")[-1]
        except (RuntimeError, TypeError) as error:
            return "TypeError" if isinstance(error, TypeError) else "RuntimeError"

    assert {d: taken(tracecomp, d) for d in DTYPES} == {d: taken(torch, d) for d in DTYPES}
