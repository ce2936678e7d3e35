"""What functions mean for sparse tensors.

Functions of single elements that keep zero at zero work on the values. Sums and products are written with functions of
dense tensors on places and values, so that they differentiate and are recorded as those are; each element of a product
is the sum over the entries in their order, in every layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tracecomp.eager.device import strided
from tracecomp.eager.modes import grad_enabled, no_grad
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.functional.dims import wrap_dim
from tracecomp.ir.types import int64
from tracecomp.sparse.compressed import KINDS, BscTensor, BsrTensor, CompressedTensor, CscTensor, CsrTensor, compressed
from tracecomp.sparse.coo import CooTensor, coo_to_dense, dense_to_coo, flat, flat_places, sparse_coo_tensor
from tracecomp.sparse.tensor import HANDLERS, SparseTensor, handles, numbers

Fn = Callable[..., Any]

_ZERO_AT_ZERO = (
    "abs", "absolute", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac",
    "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "positive", "rad2deg", "relu", "round", "sgn",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "arcsin", "arctan", "arcsinh", "arctanh", "fix",
    "signbit",
)  # fmt: skip
_LINEAR = ("neg", "negative", "conj", "resolve_conj")
_CASTS = (
    "float",
    "double",
    "half",
    "bfloat16",
    "int",
    "long",
    "short",
    "char",
    "byte",
    "bool",
    "type",
    "cfloat",
    "cdouble",
)


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is a sparse tensor of any layout."""
    return isinstance(x, SparseTensor)


def dense(x: Any) -> Any:
    """``x`` with all elements, where it is sparse."""
    return to_dense(x) if is_sparse(x) else x


def _on_values(name: str, linear: bool) -> None:
    @handles(name)
    def run(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        whole = input if linear or not isinstance(input, CooTensor) else input.coalesce()
        return whole.like(getattr(T, name)(whole._values_, *args, **kwargs))


def _cast(name: str) -> None:
    @handles(name)
    def run(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        return input.like(getattr(Tensor, name)(input._values_, *args, **kwargs))


for _name in _ZERO_AT_ZERO:
    _on_values(_name, linear=False)
for _name in _LINEAR:
    _on_values(_name, linear=True)
for _name in _CASTS:
    _cast(_name)


def through_coo(*names: str) -> Callable[[Fn], Fn]:
    """A decorator: what a function of coordinates means for all layouts; a sparse result is in that of the operand."""

    def decorate(fn: Fn) -> Fn:
        def run(*args: Any, **kwargs: Any) -> Any:
            first = next((x for x in (*args, *kwargs.values()) if is_sparse(x)), None)
            if first is None:
                raise TypeError(f"{names[0]}(): expected a sparse tensor among the arguments")
            coos = [x.coo() if is_sparse(x) else x for x in args]
            found = fn(*coos, **{k: v.coo() if is_sparse(v) else v for k, v in kwargs.items()})
            back = isinstance(first, CompressedTensor) and isinstance(found, CooTensor) and found.sparse_dim() == 2
            return first.from_coo(found) if back else found

        run.__name__ = run.__qualname__ = names[0]
        run.__doc__ = fn.__doc__
        handles(*names)(run)
        return fn

    return decorate


# ---- layouts


@handles("to_dense")
def to_dense(input: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements: a dense tensor itself."""
    found = coo_to_dense(input.coo()) if is_sparse(input) else input
    return found if dtype is None else found.to(dtype)


def _layout_of(name: str) -> type[CompressedTensor] | None:
    kinds: dict[str, type[CompressedTensor]] = {
        "to_sparse_csr": CsrTensor, "to_sparse_csc": CscTensor, "to_sparse_bsr": BsrTensor, "to_sparse_bsc": BscTensor
    }  # fmt: skip
    return kinds.get(name)


def to_sparse(
    input: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Any:
    """``input`` as a sparse tensor: coordinates of its first ``sparse_dim`` dimensions, or another ``layout``."""
    if layout in KINDS:
        return _compress(input, KINDS[layout], blocksize)
    return input.coo() if isinstance(input, SparseTensor) else dense_to_coo(input, sparse_dim)


def _compress(input: Tensor, kind: type[CompressedTensor], blocksize: Any) -> Any:
    if kind.blocked and (blocksize is None or len(blocksize) != 2):
        raise RuntimeError(f"to_sparse: a blocksize of two numbers is needed for layout {kind._kind!r}")
    coo = input.coo() if isinstance(input, SparseTensor) else dense_to_coo(input)
    return compressed(coo, kind, tuple(blocksize) if kind.blocked else (1, 1))


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> Any:
    """``input``, a matrix, compressed by rows."""
    return _compress(input, CsrTensor, None)


def to_sparse_csc(input: Tensor, dense_dim: int | None = None) -> Any:
    """``input``, a matrix, compressed by columns."""
    return _compress(input, CscTensor, None)


def to_sparse_bsr(input: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Any:
    """``input``, a matrix, as rows of dense blocks."""
    return _compress(input, BsrTensor, blocksize)


def to_sparse_bsc(input: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Any:
    """``input``, a matrix, as columns of dense blocks."""
    return _compress(input, BscTensor, blocksize)


def to_sparse_coo(input: Tensor) -> Any:
    """``input`` as coordinates."""
    return to_sparse(input)


def sparse_mask(input: Tensor, mask: Any) -> Any:
    """The elements of ``input`` at the places of ``mask``."""
    places = mask.coo().coalesce()
    whole = dense(input)
    head = tuple(whole.shape[: places.sparse_dim()])
    rows = whole.reshape(math.prod(head), *whole.shape[places.sparse_dim() :])
    return mask.from_coo(places.like(rows.index_select(0, flat_places(places))))


for _fn in (to_sparse, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, to_sparse_coo, sparse_mask):
    handles(_fn.__name__)(_fn)


# ---- the same places


@handles("clone")
def clone(input: SparseTensor, *, memory_format: Any = None) -> Any:
    return input.like(input._values_.clone())


@handles("to")
def to(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return input.like(Tensor.to(input._values_, *args, **kwargs))


@handles("cpu", "contiguous", "pin_memory")
def same(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return input


@handles("zeros_like", "empty_like")
def zeros_like(input: SparseTensor, *, dtype: Any = None, **options: Any) -> Any:
    if options.get("layout") is strided:
        return T.zeros(tuple(input.shape), dtype=dtype or input.dtype)
    coo = input.coo()
    values = coo._values_.detach()[:0].to(dtype or input.dtype)
    return input.from_coo(CooTensor.of(tuple(input.shape), (coo._places[:, :0], values), True))


@handles("is_floating_point")
def is_floating_point(input: SparseTensor) -> Any:
    return input.dtype.is_floating_point


@handles("is_complex")
def is_complex(input: SparseTensor) -> bool:
    return input.dtype.is_complex


@handles("is_signed")
def is_signed(input: SparseTensor) -> bool:
    return input.dtype.is_signed


@handles("numel", "nelement")
def numel(input: SparseTensor) -> int:
    return math.prod(input.shape)


@handles("dim", "ndimension")
def dim_(input: SparseTensor) -> int:
    return len(input.shape)


@handles("size")
def size(input: SparseTensor, dim: int | None = None) -> Any:
    return input.shape if dim is None else input.shape[wrap_dim(dim, len(input.shape))]


@handles("is_same_size")
def is_same_size(input: Any, other: Any) -> bool:
    return tuple(input.shape) == tuple(other.shape)


# ---- arithmetic


def _same_places(a: CooTensor, b: CooTensor) -> bool:
    if a._places is b._places:
        return True
    return a._places.shape == b._places.shape and bool(
        (numbers(a._places, "add()") == numbers(b._places, "add()")).all()
    )  # fmt: skip


@through_coo("add", "__add__")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Sparse and sparse; dense and sparse give a dense tensor."""
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}"
        )
    scaled = other._values_ if isinstance(alpha, int) and alpha == 1 else other._values_ * alpha
    if not is_sparse(input):
        return _add_to_dense(input, other, scaled)
    if _same_places(input, other):
        return input.like(input._values_ + scaled)
    kind = T.result_type(input._values_, scaled)
    values = T.cat([input._values_.to(kind), scaled.to(kind)])
    found = CooTensor.of(tuple(input.shape), (T.cat([input._places, other._places], 1), values))
    return found.coalesce() if input._coalesced and other._coalesced else found


def _add_to_dense(input: Tensor, other: CooTensor, values: Tensor) -> Tensor:
    head = tuple(other.shape[: other.sparse_dim()])
    rows = input.reshape(math.prod(head), *input.shape[other.sparse_dim() :])
    kind = T.result_type(rows, values)
    return rows.to(kind).index_add(0, flat_places(other), values.to(kind)).reshape(tuple(input.shape))


@through_coo("sub", "subtract", "__sub__")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    if not is_sparse(other):
        raise RuntimeError("sub(sparse, dense) is not supported. Use sub(dense, sparse) instead.")
    return add(input, other.like(-other._values_), alpha=alpha)


@through_coo("mul")
def mul(input: Any, other: Any) -> Any:
    """With a number; with a dense tensor, at the places; with a sparse one, where both have a place."""
    if not is_sparse(input):
        input, other = other, input
    if is_sparse(other):
        return _intersection(input.coalesce(), other.coalesce())
    if not isinstance(other, Tensor) or other.ndim == 0:
        return input.like(input._values_ * other)
    return input.like(input._values_ * _at_places(other.expand(tuple(input.shape)), input))


def _at_places(x: Tensor, where: CooTensor) -> Tensor:
    head = tuple(where.shape[: where.sparse_dim()])
    return x.reshape(math.prod(head), *x.shape[where.sparse_dim() :]).index_select(0, flat_places(where))


def _intersection(a: CooTensor, b: CooTensor) -> CooTensor:
    if tuple(a.shape) != tuple(b.shape) or a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"mul operands have incompatible sizes: {list(a.shape)} and {list(b.shape)} of sparse tensors"
        )
    head = tuple(a.shape[: a.sparse_dim()])
    first, second = (flat(numbers(x._places, "mul()"), head) for x in (a, b))
    _, i, j = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    values = a._values_.index_select(0, wrap(i)) * b._values_.index_select(0, wrap(j))
    return CooTensor.of(tuple(a.shape), (a._places.index_select(1, wrap(i)), values), True)


@through_coo("div")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if not is_sparse(input) or is_sparse(other):
        raise RuntimeError("Sparse division requires the divisor to be a scalar or dense")
    if isinstance(other, Tensor) and other.ndim:
        other = _at_places(other.expand(tuple(input.shape)), input)
    whole = input.coalesce() if rounding_mode else input
    return whole.like(T.div(whole._values_, other, rounding_mode=rounding_mode))


@through_coo("pow", "__pow__")
def pow_(input: Any, exponent: Any) -> Any:
    if isinstance(exponent, Tensor) or not is_sparse(input) or exponent <= 0:
        raise RuntimeError("pow of a sparse tensor needs a number above 0: other powers of zero are not zero")
    whole = input.coalesce()
    return whole.like(whole._values_**exponent)


def _scaling(name: str, fn: Fn) -> Fn:
    """``mul`` or ``div``, which by a number is one of the values alone."""

    @handles(name, *_SAME[name])
    def run(input: Any, other: Any, **options: Any) -> Any:
        if is_sparse(input) and not isinstance(other, Tensor) and not options:
            return input.like(getattr(T, name)(input._values_, other))
        return fn(input, other, **options)

    return run


_SAME = {"mul": ("multiply", "__mul__", "__rmul__"), "div": ("divide", "true_divide", "__truediv__")}
for _name in _SAME:
    _scaling(_name, HANDLERS[_name])


def _in_place(name: str, fn: Fn) -> None:
    @handles(f"{name}_", f"__i{name}__")
    def run(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_sparse(input):
            return input.copy_(fn(input, *args, **kwargs))
        found = input.from_coo(fn(input.coo(), *(x.coo() if is_sparse(x) else x for x in args), **kwargs))
        return _become(input, found)


def _become(input: SparseTensor, found: SparseTensor) -> Any:
    if input.requires_grad and input.is_leaf and grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if tuple(input.shape) != tuple(found.shape):
        raise RuntimeError(f"output with shape {list(input.shape)} doesn't match the shape {list(found.shape)}")
    if input._recorded and not all(a is b for a, b in zip(input.parts()[:-1], found.parts()[:-1], strict=True)):
        raise RuntimeError("a sparse tensor that a compiled function uses keeps its places; make a new one instead")
    if input._recorded or found._values_.shape == input._values_.shape:
        with no_grad() if input.is_leaf and not found.requires_grad else nullcontext():
            input._values_.copy_(found._values_)
    else:
        input._values_ = found._values_
    for name in ("_places", "_coalesced", "_pointers", "_others"):
        if name in vars(found):
            setattr(input, name, getattr(found, name))
    return input


for _name, _fn in (("add", add), ("sub", sub), ("mul", mul), ("div", div)):
    _in_place(_name, _fn)


@handles("zero_")
def zero_(input: SparseTensor) -> Any:
    return _become(input, zeros_like(input))


@handles("copy_")
def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_sparse(input) or not is_sparse(src):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented!")
    return _become(input, input.from_coo(src.coo()).like(src._values_.clone()))


# ---- products


def _rows_times(a: CooTensor, b: Tensor) -> Tensor:
    """A sparse matrix times a dense one: for every entry its value times a row of ``b``, added up by rows in order."""
    if a.sparse_dim() != 2 or a.dense_dim():
        raise RuntimeError(f"mm: expected a sparse matrix of scalars, got size {list(a.shape)}")
    kind = T.result_type(a._values_, b)
    picked = a._values_.to(kind).unsqueeze(1) * b.to(kind).index_select(0, a._places[1])
    return T.zeros((a.shape[0], b.shape[1]), dtype=kind).index_add(0, a._places[0], picked)


def _transposed(x: CooTensor) -> CooTensor:
    return CooTensor.of((x.shape[1], x.shape[0]), (x._places.flip(0), x._values_))


def _sparse_times_sparse(a: CooTensor, b: CooTensor) -> CooTensor:
    """Every pair of an entry of ``a`` and one of ``b`` in the row of its column, added up by places."""
    a, b = a.coalesce(), b.coalesce()
    left, right = numbers(a._places, "mm()"), numbers(b._places, "mm()")
    begins = np.searchsorted(right[0], np.arange(b.shape[0] + 1))
    counts = (begins[1:] - begins[:-1])[left[1]]
    first = np.repeat(np.arange(left.shape[1]), counts)
    within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    second = begins[left[1]][first] + within
    places = np.stack([left[0][first], right[1][second]]).astype(np.int64)
    values = a._values_.index_select(0, wrap(first)) * b._values_.index_select(0, wrap(second))
    return CooTensor.of((a.shape[0], b.shape[1]), (wrap(places), values)).coalesce()


@through_coo("mm", "spmm", "_sparse_mm")
def mm(input: Any, mat2: Any, reduce: str = "sum") -> Any:
    """The product of two matrices of which at least one is sparse; of two sparse ones, a sparse matrix."""
    if input.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"addmm: matrices expected, got {input.ndim}D tensor")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"mm: Argument #3 (dense): Expected dim 0 size {input.shape[1]}, got {mat2.shape[0]} "
            f"({list(input.shape)} @ {list(mat2.shape)})"
        )
    if reduce != "sum":
        raise NotImplementedError(f"sparse.mm(): reduce={reduce!r} does not exist here, only 'sum'")
    if is_sparse(input) and is_sparse(mat2):
        return _sparse_times_sparse(input, mat2)
    if is_sparse(input):
        return _rows_times(input, mat2)
    return _rows_times(_transposed(mat2), input.t()).t()


@through_coo("mv")
def mv(input: Any, vec: Any) -> Any:
    return mm(input, vec.unsqueeze(1)).squeeze(1)


@through_coo("matmul", "__matmul__")
def matmul(input: Any, other: Any) -> Any:
    if is_sparse(input) and not is_sparse(other) and other.ndim == 1:
        return mv(input, other)
    if input.ndim == 1:
        return mm(input.unsqueeze(0), other).squeeze(0)
    if input.ndim == 3:
        return bmm(input, other)
    return mm(input, other)


@handles("bmm")
def bmm(input: Any, mat2: Any) -> Any:
    """A sparse tensor of matrices times a dense one, matrix by matrix."""
    return T.stack([dense(mm_of_any(input[i], mat2[i])) for i in range(input.shape[0])])


def mm_of_any(a: Any, b: Any) -> Any:
    return mm(a, b) if is_sparse(a) or is_sparse(b) else T.mm(a, b)


@through_coo("addmm", "_sparse_addmm")
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = mm_of_any(mat1, mat2)
    scaled = input if isinstance(beta, int) and beta == 1 else input * beta
    return T.add(scaled, product, alpha=alpha)


@through_coo("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    product = mm_of_any(input, weight.t() if not is_sparse(weight) else _transposed(weight))
    return product if bias is None else product + bias


@through_coo("hspmm")
def hspmm(mat1: Any, mat2: Any) -> Any:
    """``mat1 @ mat2`` with sparse rows of dense values."""
    rows = np.unique(numbers(mat1._places, "hspmm()")[0])
    found = mm(mat1, mat2).index_select(0, wrap(rows))
    return CooTensor.of((mat1.shape[0], mat2.shape[1]), (wrap(rows.reshape(1, -1)), found), True)


def sampled_addmm(input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:
    """``alpha * (mat1 @ mat2)`` at the places of ``input``, plus ``beta * input``."""
    places = input.coo().coalesce()
    rows, columns = places._places[0], places._places[1]
    products = (mat1.index_select(0, rows) * mat2.t().index_select(0, columns)).sum(1)
    return input.from_coo(places.like(products * alpha + places._values_ * beta))


# ---- reductions


@through_coo("sum", "_sparse_sum")
def sum_(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of all elements, a 0-d tensor, or over ``dim``: sparse while a sparse dimension is left."""
    x = input if dtype is None else input.like(input._values_.to(dtype))
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return x._values_.sum()
    dims = sorted({wrap_dim(d, len(x.shape)) for d in (dim if isinstance(dim, tuple | list) else (dim,))})
    count = x.sparse_dim()
    over = [d for d in dims if d >= count]
    values = x._values_.sum([d - count + 1 for d in over]) if over else x._values_
    kept = [d for d in range(count) if d not in dims]
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    if not kept:
        return values.sum(0)
    if len(kept) == count:
        found = CooTensor.of(shape, (x._places, values), x._coalesced)
    else:
        found = CooTensor.of(shape, (x._places[kept], values)).coalesce()
    for d in dims if keepdim else ():
        found = unsqueeze(found, d)
    return found


@handles("norm")
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dim is not None:
        raise NotImplementedError("norm() of a sparse tensor is that of all elements: no dim")
    return T.norm(input.coo().coalesce()._values_.reshape(-1), p=2 if p in ("fro", None) else p, dtype=dtype)


@handles("any")
def any_(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None:
        raise NotImplementedError("any() of a sparse tensor is that of all elements: no dim")
    return input._values_.any()


def _softmax(input: Any, dim: int, log: bool, dtype: Any) -> Any:
    x = input.coo().coalesce()
    x = x if dtype is None else x.like(x._values_.to(dtype))
    axis = wrap_dim(dim, len(x.shape))
    if axis >= x.sparse_dim():
        fn = T.log_softmax if log else T.softmax
        return x.like(fn(x._values_, axis - x.sparse_dim() + 1))
    others = [d for d in range(x.sparse_dim()) if d != axis]
    array = numbers(x._places, "softmax()")
    _, group = np.unique(flat(array[others], [x.shape[d] for d in others]), return_inverse=True)
    where, count = wrap(group.reshape(-1).astype(np.int64)), int(group.max(initial=-1)) + 1
    tail = tuple(x._values_.shape[1:])
    lowest = T.full((count, *tail), -math.inf, dtype=x.dtype)
    index = where.reshape(-1, *(1,) * len(tail)).expand(tuple(x._values_.shape))
    most = lowest.scatter_reduce(0, index, x._values_.detach(), "amax")
    shifted = x._values_ - most.index_select(0, where)
    total = T.zeros((count, *tail), dtype=x.dtype).index_add(0, where, shifted.exp()).index_select(0, where)
    return input.from_coo(x.like(shifted - total.log() if log else shifted.exp() / total))


@handles("softmax", "_sparse_softmax")
def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Over the elements that are there; places without one count as minus infinity."""
    return _softmax(input, dim, False, dtype)


@handles("log_softmax", "_sparse_log_softmax")
def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of ``softmax``."""
    return _softmax(input, dim, True, dtype)


# ---- shapes


@handles("t")
def t(input: Any) -> Any:
    return transpose(input, 0, 1) if len(input.shape) > 1 else input


@handles("transpose", "swapaxes", "swapdims")
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    order = list(range(len(input.shape)))
    a, b = wrap_dim(dim0, len(order)), wrap_dim(dim1, len(order))
    order[a], order[b] = order[b], order[a]
    return permute(input, order)


@handles("permute")
def permute(input: Any, *dims: Any) -> Any:
    order = [wrap_dim(d, len(input.shape)) for d in (dims[0] if isinstance(dims[0], tuple | list) else dims)]
    if isinstance(input, CompressedTensor):
        if order == [0, 1]:
            return input
        other = {CsrTensor: CscTensor, CscTensor: CsrTensor, BsrTensor: BscTensor, BscTensor: BsrTensor}[type(input)]
        values = input._values_.transpose(1, 2) if input.blocked else input._values_
        return other.of((input.shape[1], input.shape[0]), (input._pointers, input._others, values))
    count = input.sparse_dim()
    if sorted(order[:count]) != list(range(count)):
        raise RuntimeError("transpose of a sparse tensor: a sparse and a dense dimension cannot change places")
    inner = [0, *(d - count + 1 for d in order[count:])]
    values = input._values_ if inner == sorted(inner) else input._values_.permute(inner)
    same = order[:count] == list(range(count))
    places = input._places if same else input._places[order[:count]]
    return CooTensor.of([input.shape[d] for d in order], (places, values), same and input._coalesced)


@handles("unsqueeze")
def unsqueeze(input: Any, dim: int) -> Any:
    axis = wrap_dim(dim, len(input.shape) + 1)
    x, shape = input.coo(), list(input.shape)
    shape.insert(axis, 1)
    if axis > x.sparse_dim():
        return CooTensor.of(shape, (x._places, x._values_.unsqueeze(axis - x.sparse_dim() + 1)), x._coalesced)
    row = T.zeros((1, x._nnz()), dtype=int64)
    return CooTensor.of(shape, (T.cat([x._places[:axis], row, x._places[axis:]]), x._values_), x._coalesced)


@handles("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Sparse tensors one after the other along ``dim``."""
    if not all(is_sparse(x) for x in tensors):
        raise RuntimeError("cat: sparse and dense tensors cannot be joined")
    first, parts = tensors[0], [x.coo() for x in tensors]
    axis, count = wrap_dim(dim, len(first.shape)), parts[0].sparse_dim()
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in parts)
    if axis >= count:
        raise NotImplementedError("cat() of sparse tensors is along a sparse dimension")
    moved, start = [], 0
    for x in parts:
        shift = np.zeros((count, 1), np.int64)
        shift[axis] = start
        moved.append(x._places + wrap(shift))
        start += int(x.shape[axis])
    found = CooTensor.of(shape, (T.cat(moved, 1), T.cat([x._values_ for x in parts])))
    return first.from_coo(found)


@handles("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@handles("index_select")
def index_select(input: Any, dim: int, index: Any) -> Any:
    """The slices ``index`` along ``dim``, which may be there several times."""
    x = input.coo()
    axis = wrap_dim(dim, len(x.shape))
    if axis >= x.sparse_dim():
        values = x._values_.index_select(axis - x.sparse_dim() + 1, index)
        return input.from_coo(CooTensor.of((*x.shape[:axis], len(index), *x.shape[axis + 1 :]), (x._places, values)))
    array, wanted = numbers(x._places, "index_select()"), numbers(index, "index_select()").reshape(-1)
    wanted = np.where(wanted < 0, wanted + x.shape[axis], wanted)
    if wanted.size and (wanted.min() < 0 or wanted.max() >= x.shape[axis]):
        raise IndexError(f"index_select(): index out of range for dimension {axis} of size {x.shape[axis]}")
    order = np.argsort(array[axis], kind="stable")
    begins = np.searchsorted(array[axis][order], wanted, "left")
    counts = np.searchsorted(array[axis][order], wanted, "right") - begins
    number = np.repeat(np.arange(len(wanted)), counts)
    entry = order[np.repeat(begins, counts) + np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)]
    places = array[:, entry]
    places[axis] = number
    shape = (*x.shape[:axis], len(wanted), *x.shape[axis + 1 :])
    return input.from_coo(CooTensor.of(shape, (wrap(places), x._values_.index_select(0, wrap(entry)))))


@handles("select", "__getitem__")
def select(input: Any, dim: Any, index: int | None = None) -> Any:
    """The slice ``index`` along ``dim``; by ``x[i]`` and ``x[i, j]``, those of the first dimensions."""
    if index is None:
        found = input
        for number in dim if isinstance(dim, tuple) else (dim,):
            if not isinstance(number, int):
                raise NotImplementedError("a sparse tensor is indexed by integers only; to_dense() takes all indices")
            found = select(found, 0, number)
        return found
    if not is_sparse(input):
        return input[index] if dim == 0 else T.select(input, dim, index)
    axis = wrap_dim(dim, len(input.shape))
    size = int(input.shape[axis])
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {axis}"
        )
    picked = index_select(input.coo(), axis, wrap(np.array([index % size])))
    return sum_(picked, axis)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Any:
    """The matrix of ``shape`` whose diagonals at ``offsets`` are the rows of ``diagonals``, aligned by columns."""
    rows, columns = shape
    given = diagonals.reshape(-1, diagonals.shape[-1])
    places, picked = [], []
    for number, offset in enumerate(np.atleast_1d(numbers(offsets, "spdiags()"))):
        column = np.arange(max(0, offset), min(columns, rows + offset, given.shape[1]))
        places.append(np.stack([column - offset, column]))
        picked.append(number * given.shape[1] + column)
    values = given.reshape(-1).index_select(0, wrap(np.concatenate(picked).astype(np.int64)))
    found = sparse_coo_tensor(wrap(np.concatenate(places, 1).astype(np.int64)), values, tuple(shape))
    return found if layout is None else to_sparse(found, layout=layout)
