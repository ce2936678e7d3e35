"""Sparse tensors value by value: functions that keep zero, sums and products of two, writes in place."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.promotion import Operand
from tracecomp.sparse import tensors as parts
from tracecomp.sparse.forms import to_sparse
from tracecomp.sparse.handlers import handles, is_number, like
from tracecomp.sparse.tensors import (
    HANDLERS,
    CooTensor,
    SparseTensor,
    coalesce,
    coo,
    coo_of,
    dense_of,
    flat_places,
)

# ---- one value at a time

_KEEP_ZERO = (
    "abs", "absolute", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "fix", "floor",
    "frac", "log1p", "neg", "negative", "positive", "rad2deg", "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt",
    "square", "tan", "tanh", "trunc", "isnan", "isinf", "isposinf", "isneginf", "signbit", "arcsin", "arctan",
    "arcsinh", "arctanh", "nan_to_num", "threshold", "threshold_", "conj_physical", "angle", "real", "imag", "conj",
)  # fmt: skip


def _elementwise(name: str) -> None:
    @handles(name)
    def apply(x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        whole = coalesce(x) if isinstance(x, CooTensor) else x
        return whole._with(getattr(T, name.rstrip("_"))(whole._stored, *args, **kwargs))


for _name in _KEEP_ZERO:
    if not _name.endswith("_") and _name not in HANDLERS:
        _elementwise(_name)


@handles("pow")
def _pow(x: SparseTensor, exponent: Tensor) -> Any:
    if not is_number(exponent) or float(exponent) <= 0:
        raise RuntimeError(
            "pow of a sparse tensor needs a positive exponent: zero or a negative one would change the zeros"
        )
    whole = coalesce(x) if isinstance(x, CooTensor) else x
    return whole._with(whole._stored**exponent)


@handles("detach")
def _detach(x: SparseTensor) -> Any:
    return x._with(x._stored.detach())


# ---- two tensors


@handles("mul", "multiply")
def _mul(a: Any, b: Any) -> Any:
    if not isinstance(a, SparseTensor):
        a, b = b, a
    if is_number(b) and not isinstance(b, SparseTensor):
        return a._with(a._stored * b)
    if isinstance(b, SparseTensor):
        return like(a, _intersection(coalesce(coo_of(a)), coalesce(coo_of(b))))
    b = T.broadcast_to(b, a.shape)
    whole = coo_of(a)
    places = b[tuple(whole._places)]
    return a._with(a._stored * places) if not _in_blocks(a) else to_sparse(dense_of(a) * b, layout=a.layout)


def _in_blocks(x: SparseTensor) -> bool:
    return x.layout in parts.IN_BLOCKS


def _same_shape(a: SparseTensor, b: SparseTensor, what: str) -> None:
    if a.shape != b.shape:
        raise RuntimeError(f"{what} operands have incompatible sizes: {tuple(a.shape)} and {tuple(b.shape)}")


def _intersection(a: CooTensor, b: CooTensor) -> CooTensor:
    """Products at the places that both have."""
    _same_shape(a, b, "mul")
    left, right = flat_places(a), flat_places(b)
    at = T.searchsorted(right, left).clamp(max=max(right.shape[0] - 1, 0))
    both = right[at] == left if right.shape[0] else T.zeros(left.shape[0]).bool()
    values = a._stored[both] * b._stored[at[both]] if right.shape[0] else a._stored[both] * 0
    return coo(a._places[:, both], values, a.shape, True)


@handles("div", "divide", "true_divide", "truediv")
def _div(a: Tensor, b: Tensor, rounding_mode: str | None = None) -> Any:
    if not isinstance(a, SparseTensor) or isinstance(b, SparseTensor) or not is_number(b):
        raise RuntimeError("Sparse division requires the divisor to be a number or a tensor without dimensions")
    whole = coalesce(a) if isinstance(a, CooTensor) and rounding_mode else a
    return whole._with(T.div(whole._stored, b, rounding_mode=rounding_mode))


@handles("add")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    if not isinstance(a, SparseTensor) or not isinstance(b, SparseTensor):
        dense, sparse = (a, b) if isinstance(b, SparseTensor) else (b, a)
        if not isinstance(dense, Tensor):
            raise TypeError("add(sparse, number) is dense everywhere: use to_dense()")
        factors = (1, alpha) if isinstance(b, SparseTensor) else (alpha, 1)
        return dense * factors[0] + dense_of(sparse) * factors[1]
    _same_shape(a, b, "add")
    first, second = coo_of(a), coo_of(b)
    indices = T.cat([first._places, second._places], 1)
    made = coo(indices, T.cat([first._stored, second._stored * alpha]), a.shape, False)
    return like(a, coalesce(made) if first._coalesced and second._coalesced else made)


@handles("sub", "subtract")
def _sub(a: Operand, b: Operand, alpha: Any = 1) -> Any:
    if isinstance(b, SparseTensor):
        return add(a, b._with(b._stored * -1), alpha)
    return add(a, b, -alpha)


HANDLERS["rsub"] = lambda a, b, alpha=1: _sub(b, a, alpha)
HANDLERS["radd"], HANDLERS["rmul"] = add, _mul


@handles("equal")
def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(T.equal(*[dense_of(x) if isinstance(x, SparseTensor) else x for x in (a, b)]))


@handles("is_same_size")
def _is_same_size(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape


# ---- in place


@handles("detach_")
def _detach_(x: SparseTensor) -> SparseTensor:
    x._stored = x._stored.detach()
    return x


@handles("zero_")
def _zero(x: SparseTensor) -> SparseTensor:
    x._stored.zero_()
    return x


def _write(x: SparseTensor, made: object, name: str) -> SparseTensor:
    """Write new values for ``x`` to the memory of the old ones: recordings and views still see them."""
    if not isinstance(made, SparseTensor):
        raise RuntimeError(f"{name}: the result is dense, but the output tensor is sparse")
    if made.layout is not x.layout or made.shape != x.shape or made.dtype != x.dtype:
        raise RuntimeError(f"{name}: {made.dtype} {tuple(made.shape)} cannot be written to {x.dtype} {tuple(x.shape)}")
    old, new = coo_of(x)._places, coo_of(made)._places
    if old.shape != new.shape or not T.equal(old, new):
        raise NotImplementedError(f"{name}: in-place changes of the sparsity pattern are not supported. Use a = a + b")
    x._stored.copy_(made._stored)
    return x


def in_place(name: str) -> None:
    """``name_`` writes the result of ``name`` into its first operand."""

    @handles(name + "_")
    def write(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        made = HANDLERS[name](x, *args, **kwargs)
        return _write(x, made, name + "_") if isinstance(x, SparseTensor) else x.copy_(made)


@handles("copy_")
def _copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    return _write(x, source, "copy_") if isinstance(x, SparseTensor) else x.copy_(dense_of(source))


_NOT_WRITTEN = ("angle", "conj", "imag", "isinf", "isnan", "isneginf", "isposinf", "positive", "real", "signbit")
for _name in ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow", *_KEEP_ZERO):
    if not _name.endswith("_") and _name not in _NOT_WRITTEN:
        in_place(_name)
for _name in ("iadd", "isub", "imul", "itruediv"):
    HANDLERS[_name] = HANDLERS[{"itruediv": "div"}.get(_name, _name[1:]) + "_"]
