"""The gather and scatter family: reading and writing along a dimension by index tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor, create, wrap
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.indexing.keys import normal_index
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, Operand, bring_exact, cast, scalar
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.ir.types import DType, bool_, broadcast_shapes, int32, int64, type_word


def _index(name: str, index: Tensor, kinds: Sequence[object] = (int64,)) -> Tensor:
    need_tensor(name, index, "index", 3)
    if index.dtype not in kinds:
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, but got {type_word(index.dtype)}")
    return cast(index, int64)


def _lift(x: Tensor) -> Tensor:
    """Treat 0-d tensors as 1-d here."""
    return to_shape(x, (1,)) if x.ndim == 0 else x


@function(takes=ALL, composite=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i, j] = input[index[i, j], j] for dim 0, and so on."""
    places = _index("gather", index, (int64, int32))
    axis = wrap_dim(dim, input.ndim)
    if index.numel() == 0:
        return create("full", value=scalar(0, input.dtype), shape=tuple(index.shape), dtype=input.dtype)
    x, at = _lift(input), _lift(places)
    if x.ndim != at.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for i, (have, want) in enumerate(zip(x.shape, at.shape, strict=True)):
        if i != axis and want > have:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(at.shape)} to be no larger than self "
                f"{list(x.shape)} apart from dimension {axis}"
            )
    return to_shape(in_range(prim.gather, x, at, axis=axis), tuple(index.shape))


def in_range(primitive: Callable[..., Tensor], *operands: Tensor, **attrs: Any) -> Tensor:
    """Call an indexed primitive; an index out of bounds is a RuntimeError here."""
    try:
        return primitive(*operands, **attrs)
    except IndexError as error:
        raise RuntimeError(str(error)) from None


_REDUCE = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _source(name: str, input: Tensor, index: Tensor, src: Tensor | Number) -> Tensor:
    """``src`` sliced to the shape of ``index``, or a number broadcast to it."""
    if not isinstance(src, Tensor):
        return constant(tuple(_lift(index).shape), src, input.dtype)
    if src.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    src, index = _lift(src), _lift(index)
    if src.ndim != index.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    for i, (have, want) in enumerate(zip(src.shape, index.shape, strict=True)):
        if want > have:
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than src {list(src.shape)} in dimension {i}"
            )
    if tuple(src.shape) == tuple(index.shape):
        return src
    return prim.slice(src, starts=(0,) * src.ndim, stops=tuple(index.shape), steps=(1,) * src.ndim)


def _scattered(name: str, input: Tensor, dim: int, index: Any, src: Tensor | Number, mode: str) -> Tensor:
    places = _index(name, index, (int64, int32))
    axis = wrap_dim(dim, input.ndim)
    if places.numel() == 0:
        return prim.cast(input, dtype=input.dtype)
    x, at = _lift(input), _lift(places)
    if x.ndim != at.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    result = in_range(prim.scatter, x, at, _source(name, input, places, src), axis=axis, mode=mode)
    return to_shape(result, tuple(input.shape))


@function(takes=ALL, inplace=True, composite=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of ``input`` with out[index[i, j], j] = src[i, j] for dim 0 (``reduce``: add or multiply)."""
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    mode = "set" if reduce is None else _REDUCE[reduce]
    given = value if src is None else src
    if given is None:
        raise TypeError("scatter(): one of the arguments 'src' and 'value' is needed")
    return _scattered("scatter", input, dim, index, given, mode)


@function(takes=ALL, inplace=True, composite=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of ``input`` with out[index[i, j], j] += src[i, j] for dim 0."""
    return _scattered("scatter_add", input, dim, index, src, "add")


def _neutral(mode: str, dtype: DType) -> Number:
    """The identity of the reduction."""
    if mode in ("add", "mul"):
        return 0 if mode == "add" else 1
    return _limits(dtype)[0 if mode == "max" else 1]


def _limits(dtype: DType) -> tuple[Number, Number]:
    if dtype.kind == "float":
        return -math.inf, math.inf
    if dtype.kind == "bool":
        return False, True
    bits = dtype.itemsize * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.signed else (0, (1 << bits) - 1)


def _check_reduce(name: str, reduce: str, allowed: Sequence[str]) -> None:
    if reduce not in allowed:
        raise RuntimeError(f"{name}: reduce argument must be one of {', '.join(allowed)}, but got {reduce!r}")


@function(inplace=True, composite=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Scatter combined by sum, prod, mean, amax or amin; ``include_self``: with the elements of ``input``."""
    _check_reduce("scatter_reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    axis = wrap_dim(dim, input.ndim)
    places = _index("scatter_reduce", index, (int64, int32))
    if places.numel() == 0:
        return prim.cast(input, dtype=input.dtype)
    x, at = _lift(input), _lift(places)
    part = _source("scatter_reduce", input, places, src)
    ones = create("full", value=1, shape=tuple(at.shape), dtype=int64)
    zeros = create("full", value=0, shape=tuple(x.shape), dtype=int64)

    def write(base: Tensor, values: Tensor, mode: str) -> Tensor:
        return in_range(prim.scatter, base, at, values, axis=axis, mode=mode)

    result = _combined(x, part, write(zeros, ones, "add"), write, reduce, include_self)
    return to_shape(result, tuple(input.shape))


def _combined(
    x: Tensor, part: Tensor, hits: Tensor, write: Callable[[Tensor, Tensor, str], Tensor], reduce: str,
    include_self: bool,
) -> Tensor:  # fmt: skip
    """Combine ``part`` into ``x``; ``hits`` counts the sources of each element."""
    mode = "add" if reduce == "mean" else _REDUCE[reduce]
    base = x
    if not include_self:
        base = prim.where(prim.gt(hits, 0), scalar(_neutral(mode, x.dtype), x.dtype), x)
    result = write(base, part, mode)
    if reduce != "mean":
        return result
    count = prim.maximum(prim.add(hits, 1) if include_self else hits, 1)
    count = cast(count, x.dtype)
    if x.dtype.is_floating_point:
        return prim.div(result, count)
    return prim.floor_divide(result, count)


def _row_index(name: str, input: Tensor, dim: int, index: Tensor) -> tuple[int, Tensor]:
    """The axis, and a 1-d index for it; negative positions are out of bounds."""
    places = _index(name, index, (int64, int32))
    if places.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector")
    return wrap_dim(dim, input.ndim), to_shape(places, (places.numel(),))


@function(takes=ALL)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The positions ``index`` (1-d) of a dimension."""
    axis, at = _row_index("index_select", input, dim, index)
    picked = prim.take(_lift(input), at, axis=axis)
    return to_shape(picked, ()) if input.ndim == 0 else picked


def _rows_source(name: str, input: Tensor, axis: int, count: int, source: Tensor) -> Tensor:
    if source.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) "
                           f"{type_word(input.dtype)} and (source) {type_word(source.dtype)}")  # fmt: skip
    shape = tuple(_lift(input).shape)
    want = (*shape[:axis], count, *shape[axis + 1 :])
    if source.ndim == 0:
        return prim.expand(source, shape=want)
    if tuple(source.shape) != want:
        raise RuntimeError(
            f"{name}(): source of shape {list(source.shape)} does not match the indexed part of self, {list(want)}"
        )
    return source


def _rows_written(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, mode: str) -> Tensor:
    axis, at = _row_index(name, input, dim, index)
    part = _rows_source(name, input, axis, at.numel(), source)
    return to_shape(prim.put(_lift(input), at, part, axis=axis, mode=mode), tuple(input.shape))


@function(takes=ALL, inplace=True, composite=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """A copy of ``input`` with alpha * source added at the positions ``index`` of a dimension."""
    scaled = source if alpha == 1 else prim.mul(source, scalar(alpha, source.dtype))
    return _rows_written("index_add", input, dim, index, scaled, "add")


@function(takes=ALL, inplace=True, composite=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of ``input`` with ``source`` at the positions ``index`` of a dimension."""
    return _rows_written("index_copy", input, dim, index, source, "set")


@function(takes=ALL, inplace=True, composite=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """A copy of ``input`` with ``value`` at the positions ``index`` of a dimension."""
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    axis, at = _row_index("index_fill", input, dim, index)
    x = _lift(input)
    at = normal_index(at, x.shape[axis], axis)
    nowhere = create("full", value=False, shape=(x.shape[axis],), dtype=bool_)
    yes = create("full", value=True, shape=(at.numel(),), dtype=bool_)
    hit = prim.put(nowhere, at, yes, axis=0, mode="set")
    filled = bring_exact(value, input.dtype)
    mask = to_shape(hit, tuple(n if i == axis else 1 for i, n in enumerate(x.shape)))
    return to_shape(prim.where(mask, filled, x), tuple(input.shape))


@function(inplace=True, composite=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Rows of ``source`` combined into ``input`` by prod, mean, amax or amin."""
    _check_reduce("index_reduce", reduce, ("prod", "mean", "amax", "amin"))
    axis, at = _row_index("index_reduce", input, dim, index)
    x = _lift(input)
    part = _rows_source("index_reduce", input, axis, at.numel(), source)
    ones = create("full", value=1, shape=tuple(part.shape), dtype=int64)
    zeros = create("full", value=0, shape=tuple(x.shape), dtype=int64)

    def write(base: Tensor, values: Tensor, mode: str) -> Tensor:
        return prim.put(base, at, values, axis=axis, mode=mode)

    result = _combined(x, part, write(zeros, ones, "add"), write, reduce, include_self)
    return to_shape(result, tuple(input.shape))


@function(takes=ALL)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by position in the flattened order, in the shape of ``index``."""
    places = _index("take", index)
    return prim.take(to_shape(input, (input.numel(),)), normal_index(places, input.numel(), 0), axis=0)


@function(takes=ALL, composite=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """:func:`gather` with broadcasting; in the flattened order without ``dim``."""
    places = _index("take_along_dim", indices)
    if dim is None:
        return gather(to_shape(input, (input.numel(),)), 0, to_shape(places, (places.numel(),)))
    if input.ndim != places.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {places.ndim} dimensions for indices"
        )
    axis = wrap_dim(dim, input.ndim)
    shape = list(broadcast_shapes(
        tuple(1 if i == axis else n for i, n in enumerate(input.shape)),
        tuple(1 if i == axis else n for i, n in enumerate(places.shape)),
    ))  # fmt: skip
    x_shape, at_shape = list(shape), list(shape)
    if input.ndim:
        x_shape[axis], at_shape[axis] = input.shape[axis], places.shape[axis]
    at = normal_index(prim.expand(places, shape=tuple(at_shape)), x_shape[axis] if input.ndim else 1, axis)
    return gather(prim.expand(input, shape=tuple(x_shape)), axis, at)


@function(takes=ALL, inplace=True, composite=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``source`` set (or added) by position in the flattened order."""
    places = _index("put_", index)
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {type_word(input.dtype)} "
            f"and source.dtype = {type_word(source.dtype)}"
        )
    if places.numel() != source.numel():
        raise RuntimeError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {places.numel()}"
        )
    count = places.numel()
    at = normal_index(to_shape(places, (count,)), input.numel(), 0)
    flat = to_shape(input, (input.numel(),))
    mode = "add" if accumulate else "set"
    return to_shape(prim.put(flat, at, to_shape(source, (count,)), axis=0, mode=mode), tuple(input.shape))


@function(takes=ALL, composite=True)
def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Every position of a dimension repeated ``repeats`` times (a number, or one per position)."""
    if repeats is None:
        counts = create("iota", shape=(input.numel(),), axis=0, dtype=int64)
        return repeat_interleave(counts, input, 0)
    x = to_shape(input, (input.numel(),)) if dim is None else _lift(input)
    axis = 0 if dim is None else wrap_dim(dim, x.ndim)
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats)
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        shape = tuple(x.shape)
        lifted = prim.reshape(x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = prim.expand(lifted, shape=(*shape[: axis + 1], repeats, *shape[axis + 1 :]))
        return prim.cast(prim.reshape(wide, shape=(*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])),
                         dtype=x.dtype)  # fmt: skip
    times = repeats if isinstance(repeats, Tensor) else wrap(np.asarray(repeats, np.int64))
    if times.numel() != x.shape[axis]:
        raise RuntimeError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{times.numel()} and input.size({axis}) = {x.shape[axis]}"
        )
    if bool((times < 0).any()):
        raise RuntimeError("repeats can not be negative")
    return prim.take(x, _repeated_places(cast(times, int64), output_size), axis=axis)


def _repeated_places(times: Tensor, total: int | None) -> Tensor:
    """0, 1, ..., each repeated the given number of times: the number of finished runs before each position."""
    ends = prim.cumsum(times, axis=0)
    needed = prim.sum(times, axes=(0,))
    if total is None:
        total = int(needed)
    elif bool(needed != total):
        raise RuntimeError("allocated size does not match required size")
    none = create("full", value=0, shape=(total + 1,), dtype=int64)
    one = create("full", value=1, shape=tuple(times.shape), dtype=int64)
    ended = prim.put(none, ends, one, axis=0, mode="add")
    return prim.slice(prim.cumsum(ended, axis=0), starts=(0,), stops=(total,), steps=(1,))
