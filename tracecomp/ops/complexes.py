"""Operators between real and complex tensors. ``Op.parts`` of other operators defines their complex meaning.

Gradients of complex values follow PyTorch: the derivative by the real part plus i times that by the imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import BadInput, Impl, Op, Operand, Pair, Paired, Parts, Sample, Write, register
from tracecomp.ir.types import Shape, TensorType, from_numpy_dtype
from tracecomp.ops.define import bad, broadcast, check_dtype, of, require
from tracecomp.ops.parts import imaginary, packed, unpacked
from tracecomp.ops.prim import prim

_SHAPES: tuple[Shape, ...] = ((3,), (), (2, 3), (0, 2))
_PAIRED_SHAPES: tuple[Shape, ...] = ((3, 2), (2,), (2, 3, 2), (0, 2))


def _complex_infer(re: TensorType, im: TensorType) -> TensorType:
    dtype = check_dtype("complex", (re, im), "wide")
    return TensorType(dtype.to_complex(), broadcast("complex", (re, im)))


def _complex_impl(re: Array, im: Array) -> Any:
    dtype = from_numpy_dtype(np.result_type(re, im)).to_complex()
    found = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), dtype.numpy)
    found.real, found.imag = re, im
    return found


def _complex_parts(re: Operand, im: Operand) -> Pair:
    shape = broadcast("complex", tuple(TensorType(x.dtype, tuple(x.shape)) for x in (re, im)))
    return Pair(*(x if tuple(x.shape) == shape else prim.expand(x, shape=shape) for x in (re, im)))


register(
    Op(
        name="complex", kind="elementwise", doc="re + i im", infer=_complex_infer, impl=_complex_impl, loop=Paired(),
        vjp=lambda g, o, i: (prim.real(g[0]), prim.imag(g[0])), saves=(), parts=_complex_parts,
        samples=(*(Sample((of(d, *s), of(d, *s))) for d in ("f32", "f64") for s in _SHAPES),
                 Sample((of("f64", 3, 1), of("f64", 2)))),
        errors=(
            bad(RuntimeError, "one dtype", of("f32", 3), of("f64", 3)),
            bad(NotImplementedError, "not implemented for 'Long'", of("i64", 3), of("i64", 3)),
        ),
    )
)  # fmt: skip


def _of_complex(name: str, infer: Callable[[TensorType], TensorType]) -> Callable[[TensorType], TensorType]:
    def checked(x: TensorType) -> TensorType:
        require(x.dtype.is_complex, RuntimeError, f"{name} is only supported for complex tensors, got {x}")
        return infer(x)

    return checked


def _real_type(x: TensorType) -> TensorType:
    return TensorType(x.dtype.to_real(), x.shape)


register(
    Op(
        name="conj", kind="elementwise", doc="the imaginary part negated", infer=_of_complex("conj", lambda x: x),
        impl=np.conjugate, loop=Paired(), vjp=lambda g, o, i: (prim.conj(g[0]),), saves=(),
        parts=lambda x: Pair(x.re, prim.neg(x.im)), traits=frozenset(("involution",)),
        samples=tuple(Sample((of(d, *s),)) for d in ("c64", "c128") for s in _SHAPES),
        errors=(bad(RuntimeError, "only supported for complex", of("f32", 3)),),
    )
)  # fmt: skip


def _view(
    name: str, doc: str, infer: Callable[[TensorType], TensorType], impl: Impl,
    vjp: Callable[[Operand], Operand],
    write: Write, parts: Parts, dtypes: tuple[str, str], shapes: Sequence[Shape],
    errors: tuple[BadInput, ...],
) -> None:  # fmt: skip
    register(
        Op(
            name=name, kind="view", doc=doc, infer=infer, impl=impl, loop=Paired(), saves=(), write=write, parts=parts,
            vjp=lambda grads, outs, ins: (vjp(grads[0]),),
            samples=tuple(Sample((of(d, *s),)) for d in dtypes for s in shapes), errors=errors,
        )
    )  # fmt: skip


def _zero(x: Operand) -> Any:
    return prim.full(like=x, value=0.0, shape=(), dtype=x.dtype)


_view("real", "the real part", _of_complex("real", _real_type), lambda x: x.real,
      lambda g: prim.complex(g, _zero(g)), lambda base, new: prim.complex(new, prim.imag(base)), lambda x: x.re,
      ("c64", "c128"), _SHAPES, (bad(RuntimeError, "only supported for complex", of("f32", 3)),))  # fmt: skip
_view("imag", "the imaginary part", _of_complex("imag", _real_type), lambda x: x.imag,
      imaginary, lambda base, new: prim.complex(prim.real(base), new), lambda x: x.im,
      ("c64", "c128"), _SHAPES, (bad(RuntimeError, "only supported for complex", of("f32", 3)),))  # fmt: skip


def _as_complex_infer(x: TensorType) -> TensorType:
    dtype = check_dtype("view_as_complex", (x,), "wide")
    require(x.ndim > 0, RuntimeError, "Input tensor must have one or more dimensions")
    require(x.shape[-1] == 2, RuntimeError, f"Tensor must have a last dimension of size 2, got {x}")
    return TensorType(dtype.to_complex(), x.shape[:-1])


def _as_real_impl(x: Array) -> Any:
    x = np.asarray(x)
    return as_strided(x.real, (*x.shape, 2), (*x.strides, x.itemsize // 2))


def _as_complex_impl(x: Array) -> Any:
    dense = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
    return dense.view(from_numpy_dtype(x.dtype).to_complex().numpy)[..., 0]


_view("view_as_real", "real and imaginary part along a new last axis",
      _of_complex("view_as_real", lambda x: TensorType(x.dtype.to_real(), (*x.shape, 2))),
      _as_real_impl,
      lambda g: prim.view_as_complex(g), lambda base, new: prim.view_as_complex(new), packed,
      ("c64", "c128"), _SHAPES, (bad(RuntimeError, "only supported for complex", of("f32", 3)),))  # fmt: skip
_view("view_as_complex", "real and imaginary part, along the last axis, as one complex number",
      _as_complex_infer, _as_complex_impl, lambda g: prim.view_as_real(g), lambda base, new: prim.view_as_real(new),
      unpacked, ("f32", "f64"), _PAIRED_SHAPES,
      (bad(RuntimeError, "last dimension of size 2", of("f32", 2, 3)),
       bad(NotImplementedError, "not implemented for 'Long'", of("i64", 3, 2))))  # fmt: skip
