"""Calls of functions that graphs do not contain: custom operators, whose fake functions tell only shapes and dtypes.

The host calls the registered function at every run of the graph, so its result may depend on anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import External, Hosted, Op, Sample, register
from tracecomp.ir.types import DType, TensorType, float32, from_numpy_dtype
from tracecomp.ops.define import of, require

Spec = tuple[Any, ...]
"""The arguments of a call as nested tuples. The first item of each names its kind.

``("size", n)`` is an int, the operand ``n`` after the tensors. All other kinds belong to the function.
"""
Function = Callable[[Sequence[Array], Spec], Sequence[Array]]

FUNCTIONS: dict[str, Function] = {"": lambda arrays, arguments: [np.negative(x) for x in arrays]}
"""Functions on arrays by the name of their operator."""

ResultType = tuple[DType, tuple[int, ...]]
STATIC = ((), ())
"""``valid`` of a call whose operands and results have no padding."""


def _infer(
    *types: TensorType, name: str, arguments: tuple[object, ...],
    results: tuple[tuple[DType, tuple[int, ...]], ...], valid: tuple[object, ...],
) -> tuple[TensorType, ...]:  # fmt: skip
    return tuple(TensorType(dtype, shape) for dtype, shape in results)


def _impl(
    *arrays: Array, name: str, arguments: Spec, results: tuple[ResultType, ...], valid: Spec
) -> tuple[Array, ...]:
    """Call the function on the valid regions of its operands; its results get the padding that ``results`` state."""
    operand_axes, result_axes = valid
    tensors = len(operand_axes) if operand_axes else len(arrays)
    sizes = [int(x) for x in arrays[tensors:]]
    given = [_valid(x, axes, sizes) for x, axes in zip(arrays, operand_axes or ((),) * tensors, strict=False)]
    require(
        name in FUNCTIONS, RuntimeError,
        f"{name}: the operator is not registered in this process. Import the module that defines it",
    )  # fmt: skip
    returned = [*FUNCTIONS[name](given, _with_sizes(arguments, sizes))]
    shapes = result_axes or tuple((-1,) * len(shape) for _, shape in results)
    wanted = [
        TensorType(dtype, tuple(n if at < 0 else sizes[at] for n, at in zip(shape, axes, strict=True)))
        for (dtype, shape), axes in zip(results, shapes, strict=True)
    ]
    found = [TensorType(from_numpy_dtype(x.dtype), x.shape) for x in returned]
    if found != wanted:
        told, made = (", ".join(map(str, types)) for types in (wanted, found))
        raise RuntimeError(at_user_line(f"{name}: its fake function returns {told}, but the operator returned {made}"))
    return tuple(_padded(_own(x, arrays), t[1]) for x, t in zip(returned, results, strict=True))


def _valid(x: Array, axes: tuple[int, ...], sizes: Sequence[int]) -> Array:
    """The elements of ``x`` without padding; ``axes`` are positions in ``sizes``, or -1 where all are valid."""
    if all(at < 0 for at in axes):
        return x
    return np.ascontiguousarray(x[tuple(slice(None if at < 0 else sizes[at]) for at in axes)])


def _padded(x: Array, shape: tuple[int, ...]) -> Array:
    if x.shape == shape:
        return x
    room = np.zeros(shape, x.dtype)
    room[tuple(map(slice, x.shape))] = x
    return room


def _own(x: Array, arrays: Sequence[Array]) -> Array:
    """``x`` in row-major memory that no operand has."""
    if any(np.may_share_memory(x, operand) for operand in arrays):
        return np.array(x, order="C")
    return np.ascontiguousarray(x).reshape(x.shape)  # it makes 0-d arrays 1-d


def _with_sizes(spec: Spec, sizes: Sequence[int]) -> Spec:
    if spec[:1] == ("size",):
        return ("int", sizes[spec[1]])
    return tuple(_with_sizes(part, sizes) if isinstance(part, tuple) else part for part in spec)


register(
    Op(
        name="opaque", kind="external", infer=_infer, impl=_impl, loop=External(separate=True), parts=Hosted(),
        doc="the results of the custom operator ``name``, whose function runs at every call",
        attrs={"name": str, "arguments": tuple, "results": tuple, "valid": tuple},
        samples=(
            Sample(
                (of("f32", 3, 2),),
                {
                    "name": "", "arguments": ("tuple", ("tensor",)), "results": ((float32, (3, 2)),), "valid": STATIC,
                },
            ),
        ),
    )
)  # fmt: skip
