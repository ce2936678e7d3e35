"""Elementwise operators that machine code runs in eager mode, so that eager and compiled results have the same bits.

If an operator's numpy result is exactly rounded (sums of two, products, roots, comparisons, integers), numpy and
machine code agree, and numpy runs it. Otherwise (exponentials, error functions, ...) machine code runs it, from the
first call and for any number of elements: a result never depends on previous compilations. Machine code also runs some
operators that numpy computes exactly but slowly, for many elements. One kernel serves all shapes
(``codegen/kernels/counted.py``). The usual passes build it once per operator and types. ``config.eager = "numpy"``
keeps numpy everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tracecomp import eager_kernels
from tracecomp.base.errors import CompileError
from tracecomp.base.locks import Lock
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.loaded import Loaded

Array = np.ndarray[Any, Any]
DTypes: TypeAlias = tuple[np.dtype[np.generic], ...]
Key: TypeAlias = tuple[str, DTypes, tuple[bool, ...]]

_ALONE = (False,)
_LENGTH = 1 << 40
"""Number of elements that a kernel is planned for: more than any call has, so that it decides nothing."""
_SHARED_FROM = 1 << 16
"""Least elements for which threads share the work."""

_kernels: dict[Key, _Counted | None] = {}
_making = Lock()


class _Counted:
    """An operator on operands of these types as machine code; ``numbers`` are operands of one element."""

    def __init__(self, op: Op, dtypes: DTypes, numbers: tuple[bool, ...]) -> None:
        graph = Graph(op.name)
        operands = [
            graph.add_input(TensorType(from_numpy_dtype(dtype), () if number else (_LENGTH,)), f"x{i}")
            for i, (dtype, number) in enumerate(zip(dtypes, numbers, strict=True))
        ]
        result = graph.apply(op.name, *operands)
        graph.add_output(result)
        self.dtype = result.dtype.numpy
        self._loaded = Loaded(program_cache.image_of(graph, host(), lambda: eager_kernels.counted_image(graph), True))

    def run(self, operands: Sequence[Array], out: Array) -> None:
        """Compute ``out`` from arrays of the same length, or of one element; all contiguous."""
        count = out.size
        self._loaded.run((*operands, out, _counted(count)), None if count >= _SHARED_FROM else 1)


@lru_cache(1024)
def _counted(count: int) -> Array:
    """The array from which machine code reads the number of elements."""
    return np.array(count)


def evaluate_natively(op: Op, operands: Sequence[Any]) -> Array | None:
    """The result of an operator on arrays of one type, conditions and numbers; None if numpy has to compute it."""
    first = next((x for x in operands if isinstance(x, np.ndarray | np.generic) and not _is_condition(x)), None)
    if first is None or first.dtype.kind not in "fV":
        return None
    # One contiguous operand is the most frequent call and skips the rest.
    if len(operands) == 1 and type(first) is np.ndarray and first.flags.c_contiguous:
        kernel = _kernels.get((op.name, (first.dtype,), _ALONE))
        if kernel is not None and first.size:
            out = maker(first.nbytes)(first.shape, first.dtype)
            kernel.run(operands, out)
            return out
    given = [np.asarray(x, None if _is_condition(x) else first.dtype) for x in operands]
    shape = first.shape if len(given) == 1 else np.broadcast_shapes(*(x.shape for x in given))
    numbers = tuple([x.size == 1 and shape != () and len(given) > 1 for x in given])
    kernel = _kernel(op, tuple([x.dtype for x in given]), numbers)
    if kernel is None:
        return None
    out, flat, operands = _laid_out(given, numbers, shape, kernel.dtype)
    if flat.size:
        kernel.run(operands, flat)
    return out


def _is_condition(x: object) -> bool:
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "b"


def _laid_out(
    given: Sequence[Array], numbers: Sequence[bool], shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> tuple[Array, Array, Sequence[Array]]:
    """Return memory for the result, and result and operands as contiguous arrays whose elements correspond.

    Like numpy, keep the memory order of operands that agree about it.
    """
    like = given[numbers.index(False)] if False in numbers else given[0]
    whole = [x for x, number in zip(given, numbers, strict=True) if not number]
    agree = like.shape == shape and min(like.strides, default=0) > 0 and len({_steps(x) for x in whole}) < 2
    if agree and not like.flags.c_contiguous:
        out = np.empty_like(like, dtype)
        flat = out.ravel(order="K")
        if flat.base is not None or flat is out:
            return out, flat, [x if number else x.ravel(order="K") for x, number in zip(given, numbers, strict=True)]
    out = maker(dtype.itemsize * math.prod(shape))(shape, dtype)
    operands = [
        x if number else np.ascontiguousarray(x if x.shape == shape else np.broadcast_to(x, shape))
        for x, number in zip(given, numbers, strict=True)
    ]
    return out, out, operands


def _steps(x: Array) -> tuple[int, ...]:
    """Steps in elements along each axis."""
    return tuple([stride // x.itemsize for stride in x.strides])


def _kernel(op: Op, dtypes: DTypes, numbers: tuple[bool, ...]) -> _Counted | None:
    """The machine code for operands of these types; None if this Python and numpy do not support it."""
    key = (op.name, dtypes, numbers)
    try:
        return _kernels[key]
    except KeyError:
        with _making:
            if key not in _kernels:
                try:
                    _kernels[key] = _Counted(op, dtypes, numbers)
                except CompileError:
                    _kernels[key] = None
        return _kernels[key]
