"""Strided views of memory, and memory given to tensors, against torch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp
from tests.functional.reference import same, torch

SOURCES: dict[str, Callable[[Any], Any]] = {
    "all of the memory": lambda x: x,
    "a matrix": lambda x: x.reshape(5, 12),
    "a transposed matrix": lambda x: x.reshape(5, 12).t(),
    "part of a matrix": lambda x: x.reshape(5, 12)[1:, 2:7],
    "permuted axes": lambda x: x.reshape(3, 4, 5).permute(2, 0, 1),
    "a row": lambda x: x.reshape(5, 12)[2],
}


def drawn(seed: int) -> tuple[list[int], list[int], int | None]:
    """Sizes, strides and an offset."""
    rnd = random.Random(seed)
    axes = range(rnd.randint(0, 3))
    size, stride = [rnd.choice([1, 2, 3, 3, 4]) for _ in axes], [rnd.choice([0, 1, 2, 3, 5, 12]) for _ in axes]
    return size, stride, rnd.choice([None, 0, 1, 7])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("source", SOURCES)
def test_a_strided_view_reads_and_writes_the_memory(source: str, seed: int) -> None:
    size, stride, offset = drawn(seed)

    def program(T: Any) -> Any:
        memory = T.arange(60.0)
        view = SOURCES[source](memory).as_strided(size, stride, offset)
        before = view.clone()
        if all(stride):
            view.fill_(-2.0)
        return before, view.storage_offset(), memory

    same(program)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("source", SOURCES)
def test_gradient_of_a_strided_view(source: str, seed: int) -> None:
    size, stride, offset = drawn(seed)

    def program(T: Any) -> Any:
        memory = T.arange(60.0).requires_grad_()
        view = SOURCES[source](memory * 1).as_strided(size, stride, offset)
        (view * view).sum().backward()
        return memory.grad

    same(program)


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "beyond the end": lambda T, x: x.as_strided((2,), (1,), 59),
    "a negative stride": lambda T, x: x.as_strided((2,), (-1,)),
    "sizes without strides": lambda T, x: x.as_strided((2, 2), (1,)),
    "in place": lambda T, x: x.as_strided_((2, 2), (1, 2)),
    "a storage": lambda T, x: T.empty(0).set_(x.untyped_storage(), 3, (2, 2), (4, 1)),
    "a storage in row-major order": lambda T, x: T.empty(0).set_(x.untyped_storage(), 3, (2, 2)),
    "all of a storage": lambda T, x: T.empty(0).set_(x[2:4].untyped_storage()),
    "a tensor": lambda T, x: T.empty(0).set_(x[:5]),
    "nothing": lambda T, x: x.clone().set_(),
    "a tensor of another dtype": lambda T, x: T.empty(0).set_(x.long()),
    "writing what was set": lambda T, x: (T.empty(0).set_(x.untyped_storage(), 1, (2,)).fill_(9.0), x)[1],
    "writing parts of an unsafe split": lambda T, x: (x.unsafe_split(20)[1].zero_(), x)[1],
    "writing parts of an unsafe split of a result": lambda T, x: ((y := x * 1).unsafe_split(20)[1].zero_(), y)[1],
    "a wider dtype at an odd offset": lambda T, x: x[1:3].view(T.int64),
    "a wider dtype of odd rows": lambda T, x: x.as_strided((4, 2), (3, 1)).view(T.int64),
    "moving one axis twice": lambda T, x: x.reshape(5, 12).movedim((0, 0), (1, 0)),
    "the transpose of a vector's conjugate": lambda T, x: T.ones(2, 3, 4).H,
    "growing what requires grad": lambda T, x: x.requires_grad_().resize_(3),
    "growing beyond all memory": lambda T, x: x.resize_([2, 4, 2**29, 2**29]),
}


@pytest.mark.parametrize("case", CASES)
def test_memory(case: str) -> None:
    same(lambda T: CASES[case](T, T.arange(60.0)))


def test_a_compiled_function_writes_through_a_strided_view() -> None:
    def program(T: Any) -> Any:
        def step(x: Any) -> Any:
            x.as_strided((3,), (5,), 1).mul_(10.0)
            return x + 1

        run = T.compile(step) if T.__name__ == "tracecomp" else step
        x = T.arange(16.0)
        return [run(x) for _ in range(3)], x

    same(program)


@pytest.mark.parametrize(
    "make", [lambda T, x: T.tensor(x), lambda T, x: x.new_tensor(x), lambda T, x: T.ones(2, 3, 4).T]
)
def test_deprecated_forms_warn_as_in_torch(make: Callable[[Any, Any], Any]) -> None:
    for T in (torch, tracecomp):
        with pytest.warns(UserWarning, match="it is recommended to use sourceTensor|is deprecated"):
            make(T, T.ones(2))
