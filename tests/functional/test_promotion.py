"""Result dtypes of every pair of operands, in-place and ``out=`` rules, against torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import tracecomp
from tests.functional.reference import same

REAL = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
DTYPES = (*REAL, "complex64", "complex128")
FUNCTIONS = ("add", "mul", "true_divide", "eq", "maximum", "atan2", "floor_divide", "bitwise_and", "pow", "where")


def call(T: Any, name: str, a: Any, b: Any) -> Any:
    if name == "where":
        return T.where(T.tensor([True, False]), a, b)
    return getattr(T, name)(a, b)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pairs(name: str) -> None:
    for first, second in itertools.product(DTYPES, DTYPES):
        for shape in ((2,), ()):
            if first == "float16" and second.startswith("complex") and not shape:
                continue  # of half precision, which is not here

            def program(T: Any, first: str = first, second: str = second, shape: Any = shape) -> Any:
                a = T.ones(2, dtype=getattr(T, first))
                return call(T, name, a, T.ones(shape, dtype=getattr(T, second)))

            same(program)


@pytest.mark.parametrize("scalar", [True, 2, -1, 2.5])
def test_python_scalars(scalar: Any) -> None:
    for dtype in DTYPES:
        for shape in ((2,), ()):
            for name in ("add", "mul", "true_divide", "eq", "pow", "remainder", "bitwise_or"):

                def program(T: Any, dtype: str = dtype, shape: Any = shape, name: str = name) -> Any:
                    return getattr(T, name)(T.ones(shape, dtype=getattr(T, dtype)), scalar)

                same(program)


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "mean", "std", "exp", "abs", "neg", "sign", "logical_not"])
def test_unary(name: str) -> None:
    for dtype in REAL if name in ("prod", "std") else DTYPES:

        def program(T: Any, dtype: str = dtype) -> Any:
            x = T.ones(2, 2, dtype=getattr(T, dtype))
            return T.cumsum(x, 0) if name == "cumsum" else getattr(T, name)(x)

        same(program)


@pytest.mark.parametrize(("target", "other"), list(itertools.product(("bool", "int32", "float32"), DTYPES)))
def test_in_place(target: str, other: str) -> None:
    def program(T: Any) -> Any:
        x = T.ones(2, dtype=getattr(T, target))
        x += T.ones(2, dtype=getattr(T, other))
        return x

    same(program)


def test_in_place_keeps_the_shape() -> None:
    same(lambda T: T.ones(1).add_(T.ones(3)))
    same(lambda T: T.ones(3).add_(T.ones(1)))


def test_out() -> None:
    def program(T: Any) -> Any:
        out = T.empty(3)
        found = T.add(T.ones(3), 2, out=out)
        assert found is out
        values, indices = T.empty(2), T.empty(2, dtype=T.int64)
        T.max(T.tensor([[1.0, 3.0], [5.0, 2.0]]), 1, out=(values, indices))
        return out, values, indices

    same(program)
    same(lambda T: T.add(T.ones(3), 2, out=T.empty(3, dtype=T.int64)))
    same(lambda T: T.add(T.ones(3).requires_grad_(), 2, out=T.empty(3)))


def test_helpers() -> None:
    same(lambda T: T.result_type(T.ones(2, dtype=T.int32), 1.5))
    same(lambda T: T.promote_types(T.uint8, T.int8))
    same(lambda T: T.can_cast(T.float32, T.int32))


def test_python_numbers_beside_bfloat16_are_weak() -> None:
    pytest.importorskip("ml_dtypes")
    x = tracecomp.ones(3, dtype=tracecomp.bfloat16)

    def run(x: Any) -> Any:
        return x * 0.35, 2 - x, x / 3, x**2, tracecomp.where(x > 0, x, 0.1), x.clamp(0.0, 0.3)

    compiled = tracecomp.compile(run)
    for found in (run(x), compiled(x), compiled(x)):
        assert {t.dtype for t in found} == {tracecomp.bfloat16}
        assert found[0].tolist() == [0.349609375] * 3
