"""The ``*_copy``, ``unsafe_*`` and ``*_scatter`` forms of view functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor, own
from tracecomp.functional.dims import clamped, wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.joining import chunk, split, split_with_sizes, unbind
from tracecomp.functional.shape.shaping import (
    cut_range,
    diagonal,
    expand,
    narrow,
    permute,
    select,
    squeeze,
    t,
    transpose,
    unfold,
    unsqueeze,
    view,
)
from tracecomp.functional.shape.strided import as_strided


def _publish_copy(name: str, fn: Callable[..., Any], public: str) -> None:
    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        result = fn(input, *args, **kwargs)
        return tuple(map(own, result)) if isinstance(result, tuple) else own(result)

    run.__name__, run.__doc__ = public, f":func:`{name}` as a copy."
    to = "torch Tensor" if public == "narrow_copy" else "torch"
    function(to=to, takes=ALL)(run)


def _publish_unsafe(name: str, fn: Callable[..., Any]) -> None:
    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = fn(input, *args, **kwargs)
        for part in found:
            part._unwritable = None
        return found

    run.__name__, run.__doc__ = f"unsafe_{name}", f":func:`{name}` whose results autograd lets be written."
    function(to="torch Tensor", takes=ALL)(run)


def detach(input: Tensor) -> Tensor:
    """``input`` without history."""
    return input.detach()


_VIEWS: tuple[Callable[..., Any], ...] = (
    as_strided, diagonal, expand, narrow, permute, select, split, split_with_sizes, squeeze, t, transpose, unbind,
    unfold, unsqueeze, view, detach,
)  # fmt: skip
for _fn in _VIEWS:
    _publish_copy(_fn.__name__, _fn, f"{_fn.__name__}_copy")
for _fn in (chunk, split, split_with_sizes):
    _publish_unsafe(_fn.__name__, _fn)


def slice_bounds(extent: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """Start and stop of a slice, clamped to the extent."""
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    a = 0 if start is None else clamped(start, extent)
    return a, max(a, extent if end is None else clamped(end, extent))


@function(to="Tensor", takes=ALL)
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """``input[start:end:step]`` along ``dim``, as a view."""
    axis = wrap_dim(dim, input.ndim)
    a, b = slice_bounds(input.shape[axis], start, end, step)
    return cut_range(input, axis, a, b, step)


_publish_copy("slice", slice_, "slice_copy")


def alias(input: Tensor) -> Tensor:
    """A view of everything."""
    return prim.reshape(input, shape=tuple(input.shape))


_publish_copy("alias", alias, "alias_copy")


def _replaced(input: Tensor, src: Tensor, seen: Callable[[Tensor], Tensor], name: str) -> Tensor:
    """A copy of ``input`` whose elements in the view ``seen`` are those of ``src``."""
    copy = own(input)
    place = seen(copy)
    if tuple(place.shape) != tuple(src.shape):
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(place.shape)} (in {name})"
        )
    place.copy_(src)
    return copy


@function(takes=ALL, composite=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of ``input`` with ``src`` at ``index`` of ``dim``."""
    return _replaced(input, src, lambda x: select(x, dim, index), "select_scatter")


@function(takes=ALL, composite=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of ``input`` with ``src`` in the slice start:end:step of ``dim``."""
    axis = wrap_dim(dim, input.ndim)
    n = input.ndim
    a, b = slice_bounds(input.shape[axis], start, end, step)
    return prim.slice_update(
        input,
        cast(src, input.dtype),
        starts=tuple(a if i == axis else 0 for i in range(n)),
        stops=tuple(b if i == axis else input.shape[i] for i in range(n)),
        steps=tuple(step if i == axis else 1 for i in range(n)),
    )


@function(takes=ALL, composite=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of ``input`` with ``src`` on a diagonal."""
    return _replaced(input.contiguous(), src, lambda x: diagonal(x, offset, dim1, dim2), "diagonal_scatter")
