"""Convolution as one trilinear relation between input, weight and output, and its three bilinear forms.

With x of shape N, C, spatial; w of shape O, C / groups, kernel; out of shape N, O, spatial:
``out[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - low] * w[o, c, k]``, c within o's group.
``conv`` computes out; ``conv_transpose`` its adjoint in x, from (out, w); ``conv_weight`` its adjoint in w, from
(x, out). Padding is a (low, high) pair per spatial axis: outside of x there are zeros, multiplied like other elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import (
    Attrs,
    BadInput,
    Bilinear,
    BilinearForm,
    Composed,
    Impl,
    Op,
    Operand,
    Operands,
    Sample,
    Types,
    register,
)
from tracecomp.ir.types import Shape, TensorType, compute_dtype, from_numpy_dtype
from tracecomp.ops.define import check_dtype, require
from tracecomp.ops.prim import prim

Ints: TypeAlias = tuple[int, ...]
Pads: TypeAlias = tuple[tuple[int, int], ...]


def conv_size(size: Shape, kernel: Shape, stride: Ints, padding: Pads, dilation: Ints) -> Shape:
    """Spatial shape of a convolution's result."""
    return tuple(
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, k, s, (low, high), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def _check(name: str, spatial: int, stride: Ints, padding: Pads, dilation: Ints, groups: int) -> None:
    require(
        len(stride) == len(padding) == len(dilation) == spatial,
        RuntimeError,
        f"{name}: stride {stride}, padding {padding} and dilation {dilation} do not describe {spatial} spatial axes",
    )
    require(all(s > 0 for s in stride), RuntimeError, f"{name}: non-positive stride is not supported: {stride}")
    require(all(d > 0 for d in dilation), RuntimeError, f"{name}: dilation should be greater than zero: {dilation}")
    require(all(p >= 0 for pair in padding for p in pair), RuntimeError, f"{name}: negative padding is not supported")
    require(groups > 0, RuntimeError, f"{name}: non-positive groups is not supported: {groups}")


def _check_ranks(name: str, a: TensorType, b: TensorType) -> int:
    check_dtype(name, (a, b), "number")
    require(
        a.ndim == b.ndim and a.ndim >= 3,
        RuntimeError,
        f"{name}: expected operands of one rank, with batch, channels and at least one spatial axis; got {a} and {b}",
    )
    return a.ndim - 2


def _conv_infer(
    x: TensorType, w: TensorType, *, stride: Ints, padding: Pads, dilation: Ints, groups: int
) -> TensorType:
    _check("conv", _check_ranks("conv", x, w), stride, padding, dilation, groups)
    require(
        x.shape[1] == w.shape[1] * groups,
        RuntimeError,
        f"Given groups={groups}, weight of size {list(w.shape)}, expected input{list(x.shape)} to have "
        f"{w.shape[1] * groups} channels, but got {x.shape[1]} channels instead",
    )
    require(
        w.shape[0] % groups == 0,
        RuntimeError,
        f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
        f"{list(w.shape)} instead",
    )
    size = conv_size(x.shape[2:], w.shape[2:], stride, padding, dilation)
    padded = [n + sum(p) for n, p in zip(x.shape[2:], padding, strict=True)]
    require(
        all(n > 0 for n in size),
        RuntimeError,
        f"Calculated padded input size per channel: {padded}. Kernel size: {list(w.shape[2:])} with dilation "
        f"{dilation}. Kernel size can't be greater than actual input size",
    )
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *size))


_EVERY: tuple[Any, ...] = (slice(None),) * 3


def _columns(x: Array, out: Shape, kernel: Shape, stride: Ints, padding: Pads, dilation: Ints, groups: int) -> Any:
    """``[g, (c, k...), (n, p...)]``: the padded input at each output position, copied tap by tap."""
    padded = np.pad(x, [(0, 0), (0, 0), *padding]) if any(map(any, padding)) else x
    n, channels = x.shape[0], x.shape[1] // groups
    seen = np.moveaxis(padded.reshape(n, groups, channels, *padded.shape[2:]), 0, 2)
    columns = np.empty((groups, channels, *kernel, n, *out), x.dtype)
    for taps in product(*map(range, kernel)):
        columns[_EVERY[:2] + taps] = seen[_EVERY + _seen_by(taps, out, stride, dilation)]
    return columns.reshape(groups, channels * math.prod(kernel), n * math.prod(out))


def _seen_by(taps: Ints, out: Shape, stride: Ints, dilation: Ints) -> tuple[Any, ...]:
    """The positions of the padded input that one tap of the kernel reads, for every output position."""
    return tuple(
        slice(t * d, t * d + (m - 1) * s + 1, s) for t, d, m, s in zip(taps, dilation, out, stride, strict=True)
    )


def _wide(fn: Impl) -> Callable[..., Any]:
    """Run ``fn`` in the computing type, rounded once at the end."""

    def impl(a: Array, b: Array, **attrs: Any) -> Any:
        wide = compute_dtype(from_numpy_dtype(a.dtype)).numpy
        result = fn(a.astype(wide, copy=False), b.astype(wide, copy=False), **attrs)
        return np.ascontiguousarray(result.astype(a.dtype, copy=False))

    return impl


@_wide
def _conv_impl(x: Array, w: Array, *, stride: Ints, padding: Pads, dilation: Ints, groups: int) -> Any:
    kernel, n, filters = w.shape[2:], x.shape[0], w.shape[0] // groups
    out = conv_size(x.shape[2:], kernel, stride, padding, dilation)
    columns = _columns(x, out, kernel, stride, padding, dilation, groups)
    result = np.matmul(w.reshape(groups, filters, columns.shape[1]), columns)
    return np.moveaxis(result.reshape(groups * filters, n, *out), 1, 0)


def _transpose_infer(
    g: TensorType, w: TensorType, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, size: Shape
) -> TensorType:
    name = "conv_transpose"
    spatial = _check_ranks(name, g, w)
    _check(name, spatial, stride, padding, dilation, groups)
    require(
        g.shape[1] == w.shape[0] and w.shape[0] % groups == 0,
        RuntimeError,
        f"Given transposed=1, groups={groups}, weight of size {list(w.shape)}, expected input{list(g.shape)} to have "
        f"{w.shape[0]} channels, but got {g.shape[1]} channels instead",
    )
    require(
        len(size) == spatial and conv_size(size, w.shape[2:], stride, padding, dilation) == g.shape[2:],
        RuntimeError,
        f"{name}: a convolution of spatial size {list(size)} with weight {w} does not give {g}",
    )
    return TensorType(g.dtype, (g.shape[0], w.shape[1] * groups, *size))


@_wide
def _transpose_impl(
    g: Array, w: Array, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, size: Shape
) -> Any:
    """Every tap of the kernel adds one strided copy of (weights times g)."""
    n, out, kernel = g.shape[0], g.shape[2:], w.shape[2:]
    channels, filters = w.shape[1], w.shape[0] // groups
    weights = w.reshape(groups, filters, channels * math.prod(kernel)).transpose(0, 2, 1)
    parts = np.matmul(weights, _by_group(g, groups)).reshape(groups, channels, *kernel, n, *out)
    whole = np.zeros((groups, channels, n, *(s + a + b for s, (a, b) in zip(size, padding, strict=True))), g.dtype)
    for taps in product(*map(range, kernel)):
        whole[_EVERY + _seen_by(taps, out, stride, dilation)] += parts[_EVERY[:2] + taps]
    inner = tuple(slice(a, a + s) for s, (a, _) in zip(size, padding, strict=True))
    return np.moveaxis(whole[_EVERY + inner].reshape(groups * channels, n, *size), 1, 0)


def _by_group(g: Array, groups: int) -> Any:
    """``[n, f, p...]`` as ``[g, f / groups, (n, p...)]``."""
    return np.moveaxis(g, 0, 1).reshape(groups, g.shape[1] // groups, g.shape[0] * math.prod(g.shape[2:]))


def _weight_infer(
    x: TensorType, g: TensorType, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, kernel: Shape
) -> TensorType:
    name = "conv_weight"
    spatial = _check_ranks(name, x, g)
    _check(name, spatial, stride, padding, dilation, groups)
    require(
        x.shape[0] == g.shape[0] and x.shape[1] % groups == 0 and g.shape[1] % groups == 0 and len(kernel) == spatial
        and conv_size(x.shape[2:], kernel, stride, padding, dilation) == g.shape[2:],
        RuntimeError,
        f"{name}: a convolution of {x} with a kernel {list(kernel)} in {groups} groups does not give {g}",
    )  # fmt: skip
    return TensorType(x.dtype, (g.shape[1], x.shape[1] // groups, *kernel))


@_wide
def _weight_impl(x: Array, g: Array, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, kernel: Shape) -> Any:
    columns = _columns(x, g.shape[2:], kernel, stride, padding, dilation, groups)
    result = np.matmul(_by_group(g, groups), columns.transpose(0, 2, 1))
    return result.reshape(g.shape[1], x.shape[1] // groups, *kernel)


def _conv_vjp(grads: Operands, outs: Operands, ins: Operands, **attrs: Any) -> Any:
    x, w = ins
    return (
        prim.conv_transpose(grads[0], w, size=tuple(x.shape[2:]), **attrs),
        prim.conv_weight(x, grads[0], kernel=tuple(w.shape[2:]), **attrs),
    )


def _transpose_vjp(grads: Operands, outs: Operands, ins: Operands, *, size: Shape, **attrs: Any) -> Any:
    g, w = ins
    return prim.conv(grads[0], w, **attrs), prim.conv_weight(grads[0], g, kernel=tuple(w.shape[2:]), **attrs)


def _weight_vjp(grads: Operands, outs: Operands, ins: Operands, *, kernel: Shape, **attrs: Any) -> Any:
    x, g = ins
    return prim.conv_transpose(g, grads[0], size=tuple(x.shape[2:]), **attrs), prim.conv(x, grads[0], **attrs)


def _unpadded(name: str, padding: Pads) -> None:
    assert not any(map(any, padding)), f"{name}: padding is made explicit by a graph pass before lowering"


def _conv_form(
    in_types: Types, out: TensorType, *, stride: Ints, padding: Pads, dilation: Ints, groups: int
) -> BilinearForm:
    _unpadded("conv", padding)
    x, w = in_types
    p, k = _spatial_names(x.ndim - 2)
    filters, channels = w.shape[0] // groups, w.shape[1]
    extents = {"n": out.shape[0], "g": groups, "o": filters, "c": channels}
    extents |= dict(zip(p, out.shape[2:], strict=True)) | dict(zip(k, w.shape[2:], strict=True))
    places = tuple({a: s, b: d} for a, b, s, d in zip(p, k, stride, dilation, strict=True))
    return BilinearForm(
        extents=extents,
        out=("n", "g", "o", *p),
        reduce=("c", *k),
        lhs=({"n": 1}, {"g": channels, "c": 1}, *places),
        rhs=({"g": filters, "o": 1}, {"c": 1}, *({a: 1} for a in k)),
    )


def _spatial_names(r: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of output positions and of kernel positions."""
    return tuple(f"p{i}" for i in range(r)), tuple(f"k{i}" for i in range(r))


def _weight_form(
    in_types: Types, out: TensorType, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, kernel: Shape
) -> BilinearForm:
    _unpadded("conv_weight", padding)
    x, g = in_types
    p, k = _spatial_names(x.ndim - 2)
    filters, channels = out.shape[0] // groups, out.shape[1]
    extents = {"g": groups, "o": filters, "c": channels, "n": x.shape[0]}
    extents |= dict(zip(p, g.shape[2:], strict=True)) | dict(zip(k, kernel, strict=True))
    places = tuple({a: s, b: d} for a, b, s, d in zip(p, k, stride, dilation, strict=True))
    return BilinearForm(
        extents=extents,
        out=("g", "o", "c", *k),
        reduce=("n", *p),
        lhs=({"n": 1}, {"g": channels, "c": 1}, *places),
        rhs=({"n": 1}, {"g": filters, "o": 1}, *({a: 1} for a in p)),
    )


def _transpose_composed(
    g: Operand, w: Operand, *, stride: Ints, padding: Pads, dilation: Ints, groups: int, size: Shape
) -> Any:
    """A convolution, of stride 1, of g with zeros between its elements, by the flipped weight with channels swapped."""
    kernel, r = tuple(w.shape[2:]), len(size)
    channels, filters = w.shape[1], w.shape[0] // groups
    interior = tuple(s - 1 for s in stride)
    spans = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    low = tuple(span - a for span, (a, _) in zip(spans, padding, strict=True))
    spread = tuple((m - 1) * s + 1 for m, s in zip(g.shape[2:], stride, strict=True))
    high = tuple(n + span - m - a for n, span, m, a in zip(size, spans, spread, low, strict=True))
    wide = prim.pad(g, low=(0, 0, *low), high=(0, 0, *high), interior=(0, 0, *interior), value=0.0)
    turned = prim.flip(w, axes=tuple(range(2, 2 + r)))
    split = prim.reshape(turned, shape=(groups, filters, channels, *kernel))
    swapped = prim.permute(split, dims=(0, 2, 1, *range(3, 3 + r)))
    weight = prim.reshape(swapped, shape=(groups * channels, filters, *kernel))
    return prim.conv(wide, weight, stride=(1,) * r, padding=((0, 0),) * r, dilation=dilation, groups=groups)


def _cases() -> list[tuple[Shape, Shape, Attrs]]:
    """``(x, w, attrs)``: one to three spatial axes, strides, dilations, lopsided padding, groups, no batch."""
    found: list[tuple[Shape, Shape, Attrs]] = []
    for x, w, stride, padding, dilation, groups in (
        ((2, 3, 8), (4, 3, 3), (1,), ((0, 0),), (1,), 1),
        ((1, 2, 9), (2, 2, 3), (2,), ((2, 1),), (2,), 1),
        ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((2, 3, 7, 6), (4, 3, 3, 3), (2, 1), ((1, 1), (1, 1)), (1, 2), 1),
        ((1, 4, 7, 6), (6, 2, 2, 3), (3, 2), ((0, 1), (2, 0)), (1, 1), 2),
        ((2, 4, 5, 5), (4, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
        ((2, 3, 4, 4), (5, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), (1, 2, 1), ((0, 0), (1, 1), (0, 1)), (1, 1, 2), 1),
        ((0, 2, 5), (3, 2, 2), (1,), ((0, 0),), (1,), 1),
    ):
        found.append((x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}))
    return found


def _out_shape(x: Shape, w: Shape, attrs: Attrs) -> Shape:
    return (x[0], w[0], *conv_size(x[2:], w[2:], attrs["stride"], attrs["padding"], attrs["dilation"]))


def _samples(pick: Callable[[Shape, Shape, Shape], tuple[Shape, Shape, Attrs]]) -> tuple[Sample, ...]:
    """Samples of one of the three forms: ``pick(x, w, out)`` returns its operands' shapes and attributes."""
    found = []
    for short in ("f32", "f64", "f16", "i64"):
        for x, w, attrs in _cases():
            a, b, own = pick(x, w, _out_shape(x, w, attrs))
            found.append(Sample(((a, short, "any"), (b, short, "any")), attrs | own))
    return tuple(found)


_ATTRS: dict[str, Any] = {"stride": tuple, "padding": tuple, "dilation": tuple, "groups": int}
_ONE: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}


def _bad(a: Shape, b: Shape, attrs: Attrs, match: str) -> BadInput:
    return BadInput(Sample(((a, "f32", "any"), (b, "f32", "any")), _ONE | attrs), RuntimeError, match)


register(
    Op(
        name="conv", kind="convolution", doc="cross-correlation of N, C, spatial by O, C / groups, kernel",
        infer=_conv_infer, impl=_conv_impl, vjp=_conv_vjp, saves=("ins",), loop=Bilinear(_conv_form), attrs=_ATTRS,
        samples=_samples(lambda x, w, out: (x, w, {})),
        errors=(
            _bad((1, 3, 8), (4, 2, 3), {}, "to have 2 channels, but got 3"),
            _bad((1, 2, 2), (4, 2, 3), {}, "Kernel size can't be greater"),
            _bad((1, 2, 8), (4, 2, 3), {"stride": (0,)}, "non-positive stride"),
            _bad((1, 4, 8), (3, 2, 3), {"groups": 2}, "divisible by 2"),
        ),
    )
)  # fmt: skip

register(
    Op(
        name="conv_transpose", kind="convolution", doc="adjoint of conv in x, from its result and w; size is spatial",
        infer=_transpose_infer, impl=_transpose_impl, vjp=_transpose_vjp, saves=("ins",),
        loop=Composed(_transpose_composed), attrs=_ATTRS | {"size": tuple},
        samples=_samples(lambda x, w, out: (out, w, {"size": x[2:]})),
        errors=(
            _bad((1, 3, 6), (4, 2, 3), {"size": (8,)}, "to have 4 channels, but got 3"),
            _bad((1, 4, 6), (4, 2, 3), {"size": (9,)}, "does not give"),
        ),
    )
)  # fmt: skip

register(
    Op(
        name="conv_weight", kind="convolution", doc="adjoint of conv in w: from x and its result, of shape kernel",
        infer=_weight_infer, impl=_weight_impl, vjp=_weight_vjp, saves=("ins",), loop=Bilinear(_weight_form),
        attrs=_ATTRS | {"kernel": tuple},
        samples=_samples(lambda x, w, out: (x, out, {"kernel": w[2:]})),
        errors=(_bad((1, 2, 8), (1, 4, 6), {"kernel": (4,)}, "does not give"),),
    )
)  # fmt: skip
