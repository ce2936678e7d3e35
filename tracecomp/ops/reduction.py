"""Reductions over ``axes`` (sorted, non-negative), which are dropped from the shape. Half types add up in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import (
    BadInput,
    Composed,
    Impl,
    LoopMeaning,
    Op,
    Operand,
    Operands,
    Parts,
    Reduced,
    Sample,
    Vjp,
    register,
)
from tracecomp.ir.types import (
    DType,
    Shape,
    TensorType,
    bool_,
    compute_dtype,
    dtype_named,
    from_numpy_dtype,
    int32,
    int64,
)
from tracecomp.ops.define import CLASSES, check_axes, check_dtype, require
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim

Axes: TypeAlias = tuple[int, ...]

_SHORT, _MANY = 16, 4096
"""Elements of a line up to which, and of an array above which, lines are reduced together, element by element."""


def kept(shape: Shape, axes: Axes) -> Shape:
    """The shape with reduced axes of size 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def dropped(shape: Shape, axes: Axes) -> Shape:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def spread(x: Operand, shape: Shape, axes: Axes) -> Any:
    """A reduction's result broadcast back over the axes it lost."""
    return prim.expand(prim.reshape(x, shape=kept(shape, axes)), shape=tuple(shape))


def _by_line(combine: np.ufunc) -> Callable[..., Any]:
    """Run ``combine`` over axes. numpy takes long for many short lines, so those are combined element by element."""

    def fn(x: Array, axis: Axes) -> Any:
        lines = [range(x.shape[a]) for a in axis]
        if 1 < math.prod(map(len, lines)) <= _SHORT and x.size >= _MANY:
            moved = np.moveaxis(x, axis, range(len(axis)))
            return reduce(combine, (moved[place] for place in product(*lines)))
        return combine.reduce(x, axis=axis)

    return fn


def _plain(fn: Impl) -> Callable[..., Any]:
    return lambda x, *, axes: fn(x, axis=axes)


def _wide(fn: Impl) -> Callable[..., Any]:
    """Run ``fn(array, axis)`` in the computing type and round once."""

    def impl(x: Array, *, axes: Axes) -> Any:
        dtype = x.dtype
        if dtype.kind == "b":
            return fn(x, axis=axes)
        return np.asarray(fn(x.astype(compute_dtype(from_numpy_dtype(dtype)).numpy, copy=False), axis=axes)).astype(
            dtype, copy=False
        )

    return impl


def reduction(
    name: str,
    doc: str,
    loop: LoopMeaning,
    impl: Impl,
    *,
    dtypes: str,
    result: DType | None = None,
    vjp: Vjp | None = None,
    saves: tuple[int | str, ...] = (),
    parts: Parts | None = None,
    traits: Sequence[str] = (),
    empty: bool = True,
) -> Op:
    """Register a reduction. ``empty``: whether it has a value over no elements."""

    def infer(x: TensorType, *, axes: Axes) -> TensorType:
        dtype = check_dtype(name, (x,), dtypes)
        check_axes(name, axes, x.ndim)
        for axis in axes:
            require(
                empty or x.shape[axis] > 0,
                IndexError,
                f"{name}(): Expected reduction dim {axis} to have non-zero size, operand {x}",
            )
        return TensorType(result or dtype, dropped(x.shape, axes))

    shapes: list[tuple[Shape, Axes]] = [((4,), (0,)), ((2, 3, 4), (1,)), ((2, 3, 4), (0, 2)), ((2, 3, 40), (2,)),
                                        ((2, 3), (0, 1)), ((), ()), ((2, 0), (0,)), ((3, 1), (1,))]  # fmt: skip
    if empty:
        shapes.append(((2, 0, 3), (1,)))
    shorts = [s for s in ("f32", "f64", "f16", "i64", "i32", "b1", "c64", "c128") if dtype_named(s) in CLASSES[dtypes]]
    samples = [Sample(((shape, short, "any"),), {"axes": axes}) for short in shorts for shape, axes in shapes]
    samples += [Sample((((3, 20), s, "special"),), {"axes": (1,)}) for s in shorts if s.startswith("f")]
    errors = [BadInput(Sample((((2, 3), shorts[0], "any"),), {"axes": (2,)}), IndexError, "Dimension out of range")]
    if not empty:
        bad = Sample((((2, 0), shorts[0], "any"),), {"axes": (1,)})
        errors.append(BadInput(bad, IndexError, "non-zero size"))
    return register(
        Op(name=name, kind="reduction", doc=doc, infer=infer, impl=impl, loop=loop, vjp=vjp, saves=saves, parts=parts,
           attrs={"axes": tuple}, traits=frozenset(traits), samples=tuple(samples), errors=tuple(errors))
    )  # fmt: skip


def _sum_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes) -> Any:
    return (spread(grads[0], ins[0].shape, axes),)


def _extreme_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes) -> Any:
    """Equal extremes share the gradient evenly, as in PyTorch's amax and amin."""
    x, shape = ins[0], tuple(ins[0].shape)
    hit = prim.cast(prim.eq(x, spread(outs[0], shape, axes)), dtype=x.dtype)
    return (prim.mul(spread(prim.div(grads[0], prim.sum(hit, axes=axes)), shape, axes), hit),)


def shift(x: Operand, by: int, fill: float, axis: int) -> Any:
    """Shift ``x`` by ``by`` elements towards the end of ``axis`` (start, if negative), filled with ``fill``."""
    rank = len(x.shape)
    low = tuple(by if i == axis else 0 for i in range(rank))
    return prim.pad(x, low=low, high=tuple(-n for n in low), interior=(0,) * rank, value=fill)


def _product_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes) -> Any:
    """The product of all others, from the left times from the right, so that zeros need no division."""
    x, shape = ins[0], tuple(ins[0].shape)
    order = tuple(i for i in range(len(shape)) if i not in axes) + axes
    moved = prim.permute(x, dims=order)
    rest = dropped(shape, axes)
    last = len(rest)
    flat = prim.reshape(moved, shape=(*rest, math.prod(shape[i] for i in axes)))
    left = prim.cumprod(shift(flat, 1, 1.0, last), axis=last)
    turned = prim.flip(shift(flat, -1, 1.0, last), axes=(last,))
    right = prim.flip(prim.cumprod(turned, axis=last), axes=(last,))
    others = prim.reshape(prim.mul(left, right), shape=tuple(shape[i] for i in order))
    back = tuple(order.index(i) for i in range(len(shape)))
    return (prim.mul(spread(grads[0], shape, axes), prim.permute(others, dims=back)),)


def _positions(shape: Shape, axes: Axes) -> tuple[Axes, Axes]:
    """The axes reordered so that the reduced ones are last, and that order's inverse."""
    order = tuple(i for i in range(len(shape)) if i not in axes) + axes
    return order, tuple(order.index(i) for i in range(len(order)))


def _arg_impl(fn: Impl) -> Callable[..., Any]:
    def impl(x: Array, *, axes: Axes) -> Any:
        order, _ = _positions(x.shape, axes)
        rest = dropped(x.shape, axes)
        flat = x.transpose(order).reshape(*rest, math.prod(x.shape[i] for i in axes))
        return np.asarray(fn(flat, axis=-1), dtype=np.int64)

    return impl


def _arg_composed(extreme: str) -> Callable[..., Any]:
    """The first position that equals the extreme, or is NaN: a minimum over positions, in 32 bits for more lanes."""

    def compose(x: Operand, *, axes: Axes) -> Any:
        shape = tuple(x.shape)
        best = spread(getattr(prim, extreme)(x, axes=axes), shape, axes)
        hit = prim.eq(x, best)
        if x.dtype.is_floating_point:
            hit = prim.bitwise_or(hit, prim.isnan(x))
        count = math.prod(shape[i] for i in axes)
        inner = tuple(shape[i] for i in axes)
        narrow = int32 if count < 2**31 else int64
        place = prim.reshape(prim.iota(like=x, shape=(count,), axis=0, dtype=narrow), shape=inner)
        _, back = _positions(shape, axes)
        place = prim.reshape(place, shape=(1,) * (len(shape) - len(axes)) + inner)
        first = prim.min(prim.where(hit, prim.permute(place, dims=back), count), axes=axes)
        return prim.cast(first, dtype=int64)

    return compose


reduction("sum", "sum over axes", Reduced("add"), _wide(_by_line(np.add)), dtypes="ring", vjp=_sum_vjp,
          parts=each("sum"))  # fmt: skip
reduction("prod", "product over axes", Reduced("mul"), _wide(np.prod), dtypes="number", vjp=_product_vjp, saves=(0,))
reduction("max", "largest over axes; NaN if any is", Reduced("max"), _plain(_by_line(np.maximum)),
          dtypes="number", vjp=_extreme_vjp, saves=("ins", "outs"), traits=("exact",), empty=False)  # fmt: skip
reduction("min", "smallest over axes; NaN if any is", Reduced("min"), _plain(_by_line(np.minimum)),
          dtypes="number", vjp=_extreme_vjp, saves=("ins", "outs"), traits=("exact",), empty=False)  # fmt: skip
reduction("any", "whether some element is true", Reduced("or"), _plain(np.any),
          dtypes="bool", result=bool_, traits=("exact",))  # fmt: skip
reduction("all", "whether every element is true", Reduced("and"), _plain(np.all),
          dtypes="bool", result=bool_, traits=("exact",))  # fmt: skip
reduction("argmax", "first position, row-major over axes, of the largest (of NaN, if any)",
          Composed(_arg_composed("max")), _arg_impl(np.argmax), dtypes="number", result=int64, empty=False)  # fmt: skip
reduction("argmin", "first position, row-major over axes, of the smallest (of NaN, if any)",
          Composed(_arg_composed("min")), _arg_impl(np.argmin), dtypes="number", result=int64, empty=False)  # fmt: skip
