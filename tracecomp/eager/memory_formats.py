"""PyTorch's memory formats, and the memory order of operators' results.

An *order* is the axes of a tensor without gaps, outermost first in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.device import channels_last, channels_last_3d, contiguous_format, memory_format

Array = np.ndarray[Any, Any]
Order: TypeAlias = tuple[int, ...]
Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""

_CHANNELS_LAST = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def order_of(format: memory_format, ndim: int) -> Order:
    """The order that ``format`` names. RuntimeError for tensors of another rank than it is for."""
    found = tuple(range(ndim)) if format is contiguous_format else _CHANNELS_LAST[format]
    if len(found) != ndim:
        raise RuntimeError(f"required rank {len(found)} tensor to use {str(format).removeprefix('torch.')} format")
    return found


def lies_in(array: Array, format: memory_format) -> bool:
    """Whether elements are dense in the order of ``format``; axes of one element may have any stride."""
    if format is contiguous_format:
        return array.flags.c_contiguous
    order = _CHANNELS_LAST[format]
    return len(order) == array.ndim and array.transpose(order).flags.c_contiguous


def suggested(array: Array) -> memory_format:
    """The format in which kernels for images give results, by the strides of an operand alone.

    As PyTorch has it: channels are last where strides say so unmistakably; an image of one channel, or of one pixel,
    counts as row-major where both are possible.
    """
    shape, strides = array.shape, array.strides
    for format, order in _CHANNELS_LAST.items():
        if len(order) == len(shape) and strides[1] and _rising([(shape[d], strides[d]) for d in reversed(order)]):
            return format
    return contiguous_format


def _rising(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether axes, channels first and the batch last, follow each other without running into each other."""
    least = 0
    for i, (size, stride) in enumerate(axes):
        if size == 0 or stride < least or (i == len(axes) - 1 and least == axes[0][1]):
            return False
        least = stride * max(size, 1)
    return True


def preserved(shape: tuple[int, ...], operands: Sequence[Array]) -> Order:
    """The order of an elementwise operator's result: the first operand decides that tells two axes apart."""
    return order_by(shape, tuple([(a.shape, a.strides) for a in operands]))


@lru_cache(4096)
def order_by(shape: tuple[int, ...], operands: tuple[Layout, ...]) -> Order:
    """As `preserved`, by the strides of operands alone, which are 0 where these have no say."""
    steps = [_steps(shape, operand) for operand in operands]
    order = [*reversed(range(len(shape)))]
    # An insertion sort that leaves axes where they are when nothing tells: what PyTorch promises of strides is this.
    for start in range(1, len(order)):
        at = start
        for before in range(start - 1, -1, -1):
            compared = _compared(shape, steps, order[before], order[at])
            if compared > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif compared < 0:
                break
    return tuple(reversed(order))


def _steps(shape: tuple[int, ...], operand: Layout) -> list[int]:
    """An operand's strides along the result's axes, 0 where it is repeated."""
    sizes, strides = operand
    missing = len(shape) - len(sizes)
    given = zip(sizes, strides, shape[missing:], strict=True)
    return [0] * missing + [abs(s) if n == whole else 0 for n, s, whole in given]


def _compared(shape: tuple[int, ...], steps: Sequence[Sequence[int]], inner: int, outer: int) -> int:
    """1 if axis ``inner`` should be outside of ``outer``, -1 if not, 0 if undetermined."""
    for step in steps:
        a, b = step[inner], step[outer]
        if a == 0 or b == 0:
            continue
        if a != b:
            return 1 if a > b else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


@lru_cache(4096)
def result_strides(shape: tuple[int, ...], operands: tuple[Layout, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an elementwise operator's result."""
    return strides_in(shape, order_by(shape, operands), itemsize)


def strides_in(shape: Sequence[int], order: Order, itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array without gaps."""
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
