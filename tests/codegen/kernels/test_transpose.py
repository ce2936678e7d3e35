"""Transposes by panels: the next panel is prefetched if no cache holds the memory, and remainders are transposed too.

Blocks begin where lines of memory do, wherever the array begins.
"""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp
from tracecomp import Tensor
from tracecomp.codegen.text.modules import defined_in

SHAPES = [
    ((1100, 1300), (1, 0)), ((1030, 2048), (1, 0)), ((1024, 1024), (1, 0)), ((40, 20000), (1, 0)),
    ((9, 400, 300), (0, 2, 1)), ((300, 7, 600), (2, 1, 0)), ((3, 700, 900), (1, 2, 0)), ((17, 33), (1, 0)),
]  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize(("shape", "dims"), SHAPES)
def test_every_element_is_moved(shape: tuple[int, ...], dims: tuple[int, ...], dtype: str, threads: int) -> None:
    array = (np.arange(np.prod(shape)) * 7919 % 65521).reshape(shape).astype(dtype)

    @tracecomp.compile(threads=threads)
    def turned(t: Tensor) -> Tensor:
        return t.permute(dims).contiguous()

    for _ in range(2):
        np.testing.assert_array_equal(turned(tracecomp.from_numpy(array)).numpy(), array.transpose(dims))


def begun(array: np.ndarray, start: int) -> Tensor:
    """A tensor of the elements of ``array`` that begins ``start`` elements after a line of memory."""
    memory = np.zeros(array.nbytes + 256, np.uint8)
    first = -memory.ctypes.data % 64 + start * array.itemsize
    placed = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return tracecomp.from_numpy(placed)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
@pytest.mark.parametrize("shape", [(1030, 2048), (3, 700, 928), (2080, 1040)])
def test_arrays_that_begin_within_a_line(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    array = (np.arange(np.prod(shape)) * 7919 % 251).reshape(shape).astype(dtype)
    turned = tracecomp.compile(lambda t: t[1:].mT.contiguous() * 2, threads=threads)
    for start in (0, 0, 1, 7, 15):
        found = turned(begun(array, start)).numpy()
        np.testing.assert_array_equal(found, array[1:].swapaxes(-1, -2) * np.array(2, dtype))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_added_in_place_is_added_once(threads: int) -> None:
    x = (np.arange(1200 * 1184) * 7919 % 65521).reshape(1200, 1184).astype("float32")
    total = tracecomp.ones(1184, 1200)
    add = tracecomp.compile(lambda y, t: y.add_(t.t()), threads=threads)
    for start in (0, 0, 3, 12):
        add(total, begun(x, start))
    np.testing.assert_array_equal(total.numpy(), 1 + 4 * x.T)


def test_what_turns_memory_backwards_is_known_to_later_modules() -> None:
    """Its name has a sign; two modules that defined it could not be linked."""
    name = "@tc.transpose.16x8.float.-512.6"
    text = f"define hidden void {name}(ptr %p) #1 {{\n  ret void\n}}"
    assert defined_in([text]) == {name: f"declare hidden void {name}(ptr %p) #1"}


@pytest.mark.parametrize("shape", [(100, 130), (33, 17), (3, 40, 50)])
def test_quarter_turns(shape: tuple[int, ...]) -> None:
    """One axis is read backwards: blocks are turned as in any transpose."""
    array = (np.arange(np.prod(shape)) * 7919 % 65521).reshape(shape).astype("float32")
    for turns in (1, 3):
        turned = tracecomp.compile(lambda t: t.rot90(turns, (-2, -1)))  # noqa: B023 - called within its round
        for _ in range(2):
            found = turned(tracecomp.from_numpy(array))
        np.testing.assert_array_equal(found.numpy(), np.rot90(array, turns, (-2, -1)))
