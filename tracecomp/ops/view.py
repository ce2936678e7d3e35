"""Views: other indexings of the same elements. ``impl`` shares memory whenever numpy can express it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, index, linear, unravel
from tracecomp.ir.loops import Expr
from tracecomp.ir.op import (
    Attrs,
    BadInput,
    Impl,
    Indexed,
    Op,
    Operand,
    Position,
    Reads,
    Sample,
    Types,
    Write,
    register,
)
from tracecomp.ir.types import Shape, TensorType, int64
from tracecomp.ops.autodiff import sum_to
from tracecomp.ops.define import check_axes, require
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim

Ints: TypeAlias = tuple[int, ...]
SAMPLE_DTYPES = ("f32", "f64", "f16", "i64", "b1", "c64", "c128")


def view(
    name: str,
    doc: str,
    *,
    infer: Callable[..., TensorType],
    impl: Impl,
    source: Callable[..., Sequence[Index]],
    vjp: Callable[..., Operand],
    write: Write,
    attrs: Attrs,
    cases: Sequence[tuple[Shape, Attrs]],
    errors: Sequence[tuple[Shape, Attrs, type[Exception], str]],
    traits: Sequence[str] = (),
) -> Op:
    """Register a view. ``source(index, in_type, **attrs)`` is the operand position of a result position."""

    def loop(at: Position, out: TensorType, reads: Reads, in_types: Types, **kw: Any) -> Expr:
        found: Expr = reads[0](tuple(source(at, in_types[0], **kw)))
        return found

    return register(
        Op(
            name=name, kind="view", doc=doc, infer=infer, impl=impl, loop=Indexed(loop),
            vjp=lambda grads, outs, ins, **kw: (vjp(grads[0], tuple(ins[0].shape), **kw),), saves=(),
            write=write, parts=each(name), attrs=attrs, traits=frozenset(traits),
            samples=tuple(Sample(((s, d, "any"),), a) for d in SAMPLE_DTYPES for s, a in cases),
            errors=tuple(BadInput(Sample(((s, "f32", "any"),), a), e, m) for s, a, e, m in errors),
        )
    )  # fmt: skip


def _reshape_infer(x: TensorType, *, shape: Shape) -> TensorType:
    result = TensorType(x.dtype, tuple(shape))
    require(
        result.numel == x.numel and all(n >= 0 for n in shape),
        RuntimeError,
        f"reshape: shape '{list(shape)}' is invalid for input of size {x.numel}, operand {x}",
    )
    return result


view(
    "reshape", "the same elements in row-major order under another shape",
    infer=_reshape_infer,
    impl=lambda x, *, shape: x.reshape(shape),
    source=lambda at, x, *, shape: unravel(linear(at, shape), x.shape),
    vjp=lambda g, base, *, shape: prim.reshape(g, shape=base),
    write=lambda base, new, *, shape: prim.reshape(new, shape=tuple(base.shape)),
    attrs={"shape": tuple},
    cases=[((2, 6), {"shape": (3, 4)}), ((2, 6), {"shape": (12,)}), ((), {"shape": (1, 1)}), ((1,), {"shape": ()}),
           ((0, 3), {"shape": (5, 0)}), ((4, 1, 3), {"shape": (4, 3)}), ((6, 4), {"shape": (2, 3, 2, 2)})],
    errors=[((2, 3), {"shape": (4,)}, RuntimeError, "is invalid for input of size 6")],
)  # fmt: skip


def _permute_infer(x: TensorType, *, dims: Ints) -> TensorType:
    require(
        sorted(dims) == list(range(x.ndim)),
        RuntimeError,
        f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
        f"ordering of dimensions or it has duplicates: {x}, dims {dims}",
    )
    return TensorType(x.dtype, tuple(x.shape[d] for d in dims))


def inverse(dims: Ints) -> Ints:
    """The permutation that undoes ``dims``."""
    return tuple(dims.index(i) for i in range(len(dims)))


view(
    "permute", "axis i of the result is axis dims[i]",
    infer=_permute_infer,
    impl=lambda x, *, dims: x.transpose(dims),
    source=lambda at, x, *, dims: [at[i] for i in inverse(dims)],
    vjp=lambda g, base, *, dims: prim.permute(g, dims=inverse(dims)),
    write=lambda base, new, *, dims: prim.permute(new, dims=inverse(dims)),
    attrs={"dims": tuple},
    cases=[((2, 3), {"dims": (1, 0)}), ((2, 3, 4), {"dims": (2, 0, 1)}), ((), {"dims": ()}),
           ((0, 3), {"dims": (1, 0)}), ((2, 3), {"dims": (0, 1)})],
    errors=[((2, 3), {"dims": (0, 0)}, RuntimeError, "ordering"), ((2,), {"dims": (0, 1)}, RuntimeError, "ordering")],
)  # fmt: skip


def _expand_infer(x: TensorType, *, shape: Shape) -> TensorType:
    lead = len(shape) - x.ndim
    require(
        lead >= 0,
        RuntimeError,
        f"expand: the number of sizes provided ({len(shape)}) must be greater or equal to the number of dimensions in "
        f"the tensor ({x.ndim})",
    )
    for axis, (have, want) in enumerate(zip(x.shape, shape[lead:], strict=True)):
        require(
            have in (want, 1),
            RuntimeError,
            f"The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton "
            f"dimension {axis + lead}.  Target sizes: {list(shape)}.  Tensor sizes: {list(x.shape)}",
        )
    return TensorType(x.dtype, tuple(shape))


def _expand_source(at: Position, x: TensorType, *, shape: Shape) -> list[Index]:
    lead = len(shape) - x.ndim
    return [Index() if n == 1 else at[lead + i] for i, n in enumerate(x.shape)]


def _expand_write(base: Operand, new: Operand, *, shape: Shape) -> Any:
    """Write the result elements back; of those that share one base element, the last wins, as in a row-major copy."""
    have = tuple(base.shape)
    if 0 in shape:
        return base
    lead = len(shape) - len(have)
    starts = tuple(n - 1 if i < lead or have[i - lead] == 1 else 0 for i, n in enumerate(shape))
    return prim.reshape(prim.slice(new, starts=starts, stops=shape, steps=(1,) * len(shape)), shape=have)


view(
    "expand", "repeated along new leading axes and axes of size 1",
    infer=_expand_infer,
    impl=lambda x, *, shape: _expanded(x, shape),
    source=_expand_source,
    vjp=lambda g, base, *, shape: sum_to(g, base),
    write=_expand_write,
    traits=("overlapping",),
    attrs={"shape": tuple},
    cases=[((3, 1), {"shape": (3, 4)}), ((3,), {"shape": (2, 3)}), ((), {"shape": (2, 2)}), ((1,), {"shape": (0,)}),
           ((2, 3), {"shape": (2, 3)}), ((1, 3, 1), {"shape": (2, 5, 3, 2)})],
    errors=[((3,), {"shape": (4,)}, RuntimeError, "expanded size of the tensor"),
            ((3, 1), {"shape": (3,)}, RuntimeError, "number of sizes")],
)  # fmt: skip


def _expanded(x: Array, shape: Shape) -> Any:
    """``np.broadcast_to``, as a writable array: a tensor's memory is not read-only."""
    lead = len(shape) - x.ndim
    if type(x) is np.ndarray and x.flags.c_contiguous and x.dtype.kind in "biufc" and lead >= 0 and x.size:
        sizes = zip(x.shape, shape[lead:], x.strides, strict=True)
        steps = [s if n == m else 0 if n == 1 else -1 for n, m, s in sizes]
        if -1 not in steps:
            return np.ndarray(shape, x.dtype, x, 0, (*[0] * lead, *steps))  # takes a tenth of the time
    return as_strided(x, shape, np.broadcast_to(x, shape).strides)


def _slice_infer(x: TensorType, *, starts: Ints, stops: Ints, steps: Ints) -> TensorType:
    require(
        len(starts) == len(stops) == len(steps) == x.ndim,
        IndexError,
        f"slice: expected {x.ndim} starts, stops and steps for operand {x}, got {starts}, {stops}, {steps}",
    )
    for a, b, step, n in zip(starts, stops, steps, x.shape, strict=True):
        require(step > 0, RuntimeError, f"slice step must be positive, got {step}")
        require(0 <= a <= b <= n, IndexError, f"slice: range [{a}, {b}) is out of bounds for size {n} in operand {x}")
    return TensorType(x.dtype, slice_shape(starts, stops, steps))


@lru_cache(4096)
def _index(starts: Ints, stops: Ints, steps: Ints) -> tuple[Any, ...]:
    """The slice in numpy's form."""
    return (*map(slice, starts, stops, steps), ...)


def slice_shape(starts: Ints, stops: Ints, steps: Ints) -> Shape:
    return tuple(-(-(b - a) // s) for a, b, s in zip(starts, stops, steps, strict=True))


def _slice_vjp(g: Operand, base: Shape, *, starts: Ints, stops: Ints, steps: Ints) -> Any:
    """Zeros between, before and after."""
    high = tuple(n - (a + (m - 1) * s + 1 if m else a) for n, a, s, m in zip(base, starts, steps, g.shape, strict=True))
    interior = tuple(s - 1 if m > 1 else 0 for s, m in zip(steps, g.shape, strict=True))
    return prim.pad(g, low=starts, high=high, interior=interior, value=0.0)


view(
    "slice", "elements starts[i], starts[i] + steps[i], ... below stops[i] of each axis",
    infer=_slice_infer,
    impl=lambda x, *, starts, stops, steps: x[_index(starts, stops, steps)],
    source=lambda at, x, *, starts, stops, steps: [i * s + a for i, s, a in zip(at, steps, starts, strict=True)],
    vjp=_slice_vjp,
    write=lambda base, new, **kw: prim.slice_update(base, new, **kw),
    attrs={"starts": tuple, "stops": tuple, "steps": tuple},
    cases=[
        (shape, {"starts": starts, "stops": stops, "steps": steps})
        for shape, starts, stops, steps in (
            ((5,), (1,), (4,), (1,)), ((5,), (0,), (5,), (2,)), ((4, 6), (1, 1), (3, 6), (1, 3)), ((), (), (), ()),
            ((5,), (2,), (2,), (1,)), ((3, 0), (1, 0), (3, 0), (1, 1)),
        )
    ],
    errors=[((5,), {"starts": (0,), "stops": (6,), "steps": (1,)}, IndexError, "out of bounds"),
            ((5,), {"starts": (0,), "stops": (5,), "steps": (0,)}, RuntimeError, "must be positive")],
)  # fmt: skip


def _flip_infer(x: TensorType, *, axes: Ints) -> TensorType:
    check_axes("flip", axes, x.ndim)
    return x


view(
    "flip", "the order of elements along axes reversed",
    infer=_flip_infer,
    impl=lambda x, *, axes: np.flip(x, axes),
    source=lambda at, x, *, axes: [x.shape[i] - 1 - v if i in axes else v for i, v in enumerate(at)],
    vjp=lambda g, base, *, axes: prim.flip(g, axes=axes),
    write=lambda base, new, *, axes: prim.flip(new, axes=axes),
    attrs={"axes": tuple},
    cases=[((4,), {"axes": (0,)}), ((2, 3), {"axes": (0, 1)}), ((2, 3), {"axes": ()}), ((0, 2), {"axes": (0,)})],
    errors=[((2,), {"axes": (1,)}, IndexError, "Dimension out of range")],
    traits=("involution",),
)  # fmt: skip


def windows_shape(sizes: Ints, lengths: Ints, strides: Ints, dilations: Ints) -> Shape:
    """How many windows fit along each of the last axes."""
    return tuple((n - d * (k - 1) - 1) // s + 1 for k, n, s, d in zip(sizes, lengths, strides, dilations, strict=True))


def _windows_infer(x: TensorType, *, sizes: Ints, strides: Ints, dilations: Ints) -> TensorType:
    k = len(sizes)
    require(
        k == len(strides) == len(dilations) and k <= x.ndim,
        RuntimeError,
        f"windows: sizes {sizes}, strides {strides}, dilations {dilations} do not describe the last axes of {x}",
    )
    require(
        all(v > 0 for v in (*sizes, *strides, *dilations)),
        RuntimeError,
        f"windows: sizes {sizes}, strides {strides} and dilations {dilations} must be positive",
    )
    lead = x.ndim - k
    counts = windows_shape(sizes, x.shape[lead:], strides, dilations)
    require(
        all(n > 0 for n in counts),
        RuntimeError,
        f"windows: windows of {sizes} (dilations {dilations}) are larger than the last axes of {x}",
    )
    return TensorType(x.dtype, (*x.shape[:lead], *counts, *sizes))


def _windows_impl(x: Array, *, sizes: Ints, strides: Ints, dilations: Ints) -> Any:
    lead = x.ndim - len(sizes)
    counts = windows_shape(sizes, x.shape[lead:], strides, dilations)
    steps = x.strides[lead:]
    return as_strided(
        x,
        (*x.shape[:lead], *counts, *sizes),
        (*x.strides[:lead], *(a * b for a, b in zip(steps, strides, strict=True)),
         *(a * b for a, b in zip(steps, dilations, strict=True))),
    )  # fmt: skip


def _windows_source(at: Position, x: TensorType, *, sizes: Ints, strides: Ints, dilations: Ints) -> list[Index]:
    k = len(sizes)
    lead = x.ndim - k
    moved = [index(at[lead + i]) * strides[i] + index(at[lead + k + i]) * dilations[i] for i in range(k)]
    return [*at[:lead], *moved]


def write_places(base: Operand, look: Callable[[Operand], Operand], new: Operand) -> Any:
    """Return ``base`` with the elements of the view ``look`` replaced by ``new``, for any composition of views.

    If several writes meet at one element, the last in row-major order wins.
    """
    shape, total, count = tuple(base.shape), math.prod(base.shape), math.prod(new.shape)
    places = prim.reshape(prim.iota(like=base, shape=(total,), axis=0, dtype=int64), shape=shape)
    where = prim.reshape(look(places), shape=(count,))
    flat = prim.reshape(base, shape=(total,))
    return prim.reshape(prim.put(flat, where, prim.reshape(new, shape=(count,)), axis=0, mode="set"), shape=shape)


view(
    "windows", "sliding windows over the last axes: leading axes, window positions, then places in the window",
    infer=_windows_infer,
    impl=_windows_impl,
    source=_windows_source,
    vjp=lambda g, base, *, sizes, strides, dilations: prim.fold(
        g, shape=base, sizes=sizes, strides=strides, dilations=dilations
    ),
    write=lambda base, new, **kw: write_places(base, lambda x: prim.windows(x, **kw), new),
    traits=("overlapping",),
    attrs={"sizes": tuple, "strides": tuple, "dilations": tuple},
    cases=[((6,), {"sizes": (3,), "strides": (1,), "dilations": (1,)}),
           ((2, 7), {"sizes": (2,), "strides": (2,), "dilations": (2,)}),
           ((2, 5, 6), {"sizes": (3, 2), "strides": (1, 2), "dilations": (2, 1)}),
           ((0, 4), {"sizes": (2,), "strides": (1,), "dilations": (1,)})],
    errors=[((3,), {"sizes": (4,), "strides": (1,), "dilations": (1,)}, RuntimeError, "larger than"),
            ((3,), {"sizes": (0,), "strides": (1,), "dilations": (1,)}, RuntimeError, "must be positive")],
)  # fmt: skip


def _diagonal_infer(x: TensorType) -> TensorType:
    require(x.ndim > 1 and x.shape[-1] == x.shape[-2], RuntimeError, f"diagonal: the last two axes differ: {x}")
    return TensorType(x.dtype, x.shape[:-1])


def _rows(x: Operand, n: int, lead: Shape) -> Any:
    """Reshape elements of n rows of n to n rows of n + 1, so that the diagonal becomes a column."""
    flat = prim.reshape(x, shape=(*lead, n * n))
    zeros = (0,) * len(lead)
    return prim.reshape(
        prim.pad(flat, value=0, low=(*zeros, 0), high=(*zeros, n), interior=(*zeros, 0)), shape=(*lead, n, n + 1)
    )


def _square(rows: Operand, n: int, lead: Shape) -> Any:
    """Undo ``_rows``."""
    flat = prim.reshape(rows, shape=(*lead, n * (n + 1)))
    cut = prim.slice(flat, starts=(0,) * (len(lead) + 1), stops=(*lead, n * n), steps=(1,) * (len(lead) + 1))
    return prim.reshape(cut, shape=(*lead, n, n))


def _diagonal_vjp(g: Operand, base: Shape) -> Any:
    *lead, n, _ = base
    zeros = (0,) * (len(lead) + 1)
    column = prim.reshape(g, shape=(*lead, n, 1))
    return _square(prim.pad(column, value=0, low=(*zeros, 0), high=(*zeros, n), interior=(*zeros, 0)), n, tuple(lead))


def _diagonal_write(base: Operand, new: Operand) -> Any:
    *lead, n, _ = base.shape
    rank = len(lead) + 2
    column = prim.reshape(new, shape=(*lead, n, 1))
    rows = _rows(base, n, tuple(lead))
    rows = prim.slice_update(rows, column, starts=(0,) * rank, stops=(*lead, n, 1), steps=(1,) * rank)
    return _square(rows, n, tuple(lead))


view(
    "diagonal", "the elements of the last two axes, of one size, at equal positions",
    infer=_diagonal_infer,
    impl=lambda x: as_strided(x, x.shape[:-1], (*x.strides[:-2], x.strides[-2] + x.strides[-1])),
    source=lambda at, x: [*at, at[-1]],
    vjp=_diagonal_vjp,
    write=_diagonal_write,
    attrs={},
    cases=[((3, 3), {}), ((2, 4, 4), {}), ((1, 1), {}), ((0, 2, 2), {}), ((2, 0, 0), {})],
    errors=[((2, 3), {}, RuntimeError, "the last two axes differ")],
)  # fmt: skip
