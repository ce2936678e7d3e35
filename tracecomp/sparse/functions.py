"""What published functions do with sparse tensors: one entry for each, found by name in ``HANDLERS``.

Everything is made of operators on values and indices, so gradients and recordings follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager import device
from tracecomp.eager.device import layout, sparse_coo
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.promotion import Operand
from tracecomp.ir.types import DType, int64
from tracecomp.sparse import tensors as parts
from tracecomp.sparse.tensors import (
    HANDLERS,
    CompressedTensor,
    CooTensor,
    SparseTensor,
    coalesce,
    compressed_of,
    coo,
    coo_of,
    coo_of_dense,
    dense_of,
    flat_places,
)

Handler = Callable[..., Any]


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Make a function what the functions of these names do with sparse tensors."""

    def put(fn: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, name
            HANDLERS[name] = fn
        return fn

    return put


def _like(x: SparseTensor, made: CooTensor) -> Any:
    """``made`` in the layout of ``x``."""
    return made if isinstance(x, CooTensor) else compressed_of(made, x.layout)


def _is_number(x: Operand) -> bool:
    return isinstance(x, int | float | complex) or (isinstance(x, Tensor) and x.dim() == 0)


# ---- what a sparse tensor is


@handles("is_sparse")
def _is_sparse(x: Tensor) -> bool:
    return isinstance(x, CooTensor)


@handles("is_sparse_csr")
def _is_sparse_csr(x: Tensor) -> bool:
    return isinstance(x, CompressedTensor) and x.layout is device.sparse_csr


@handles("layout")
def _layout(x: SparseTensor) -> layout:
    return x.layout


@handles("device")
def _device(x: SparseTensor) -> Any:
    return parts.place_of(x)


for _name in ("is_cuda", "is_quantized", "is_meta", "is_mps", "is_nested", "is_xpu", "is_mkldnn", "is_conj", "is_neg"):
    HANDLERS[_name] = lambda x: False
HANDLERS["is_cpu"] = lambda x: True
HANDLERS["is_floating_point"] = lambda x: x._stored.is_floating_point()
HANDLERS["is_complex"] = lambda x: x._stored.is_complex()
HANDLERS["is_signed"] = lambda x: x._stored.is_signed()


@handles("repr", "format")
def _repr(x: SparseTensor, *_: Any, **__: Any) -> str:
    """As PyTorch prints sparse tensors."""
    nnz = x._stored.shape[0]
    if isinstance(x, CooTensor):
        stored = [("indices", x._places)]
    else:
        assert isinstance(x, CompressedTensor)
        rows = x.layout in parts.BY_ROWS
        names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
        stored = [(names[0], x._compressed), (names[1], x._plain)]
    stored.append(("values", x._stored.detach()))
    texts = [str(t) if t.numel() else f"tensor([], size={tuple(t.shape)})" for _, t in stored]
    said = f", dtype={x.dtype}"
    kind = said if isinstance(x, CooTensor) and texts[-1].endswith(said + ")") else ""
    texts[-1] = texts[-1].removesuffix(kind + ")") + ")"  # COO tensors say their type behind the size
    more = ""
    shown = ",\n       ".join(
        f"{n}={text.replace(chr(10), chr(10) + ' ' * (len(n) + 8))}" for (n, _), text in zip(stored, texts, strict=True)
    )
    if x.grad_fn is not None:
        more += f", grad_fn=<{x.grad_fn.name()}>"
    elif x.requires_grad:
        more += ", requires_grad=True"
    if isinstance(x, CooTensor):
        return f"tensor({shown},\n       size={tuple(x.shape)}, nnz={nnz}{kind}, layout={x.layout}{more})"
    return f"tensor({shown}, size={tuple(x.shape)}, nnz={nnz}{more},\n       layout={x.layout})"


@handles("is_coalesced")
def _is_coalesced(x: CooTensor) -> bool:
    _coo_only(x, "is_coalesced")
    return x._coalesced


def _coo_only(x: Tensor, what: str) -> None:
    if not isinstance(x, CooTensor):
        raise RuntimeError(f"{what} expected sparse coordinate tensor layout but got {x.layout}")


HANDLERS["coalesce"] = lambda x: coalesce(x)


@handles("indices")
def _indices(x: CooTensor) -> Tensor:
    _coo_only(x, "indices")
    if not x._coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return x._places


@handles("values")
def _values(x: SparseTensor) -> Tensor:
    if isinstance(x, CooTensor) and not x._coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return x._stored


def _stored(name: str, kinds: Sequence[layout], field: str) -> None:
    @handles(name)
    def read(x: SparseTensor) -> Tensor:
        if x.layout not in kinds:
            raise RuntimeError(f"{name} expected {' or '.join(map(str, kinds))} tensor layout but got {x.layout}")
        found: Tensor = getattr(x, field)
        return found


_by_columns = (device.sparse_csc, device.sparse_bsc)
_stored("crow_indices", parts.BY_ROWS, "_compressed")
_stored("col_indices", parts.BY_ROWS, "_plain")
_stored("ccol_indices", _by_columns, "_compressed")
_stored("row_indices", _by_columns, "_plain")
HANDLERS["sparse_dim"] = lambda x: int(x._places.shape[0]) if isinstance(x, CooTensor) else 2
HANDLERS["dense_dim"] = lambda x: x._stored.dim() - 1 if isinstance(x, CooTensor) else 0


# ---- other forms


@handles("to_dense")
def _to_dense(x: SparseTensor, dtype: DType | None = None, **_: Any) -> Tensor:
    found = dense_of(x)
    return found if dtype is None else found.to(dtype)


@handles("to_sparse")
def to_sparse(x: Tensor, *args: Any, layout: layout | None = None, blocksize: object = None, **_: Any) -> SparseTensor:
    """``x`` (dense or sparse) in a sparse layout, COO unless told; the number of sparse dimensions may be given."""
    kind = layout or sparse_coo
    if isinstance(x, SparseTensor):
        if x.layout is kind:
            return x
        made = coo_of(x)
        return _in_layout(made, kind, blocksize)
    count = args[0] if args and isinstance(args[0], int) else None
    if count is not None and not 0 < count <= x.dim():
        raise RuntimeError(f"sparse_dim argument must be in >0,<={x.dim()}, got {count}")
    return _in_layout(coo_of_dense(x, count), kind, blocksize)


def _in_layout(x: CooTensor, kind: layout, block: Any) -> SparseTensor:
    return x if kind is sparse_coo else compressed_of(x, kind, block)


def _to_layout(name: str, kind: layout) -> None:
    @handles(name)
    def convert(x: Tensor, *args: Any, **_: Any) -> SparseTensor:
        block = args[0] if args and isinstance(args[0], Sequence) else None
        made: SparseTensor = to_sparse(x, layout=kind, blocksize=block)
        return made


for _name in ("csr", "csc", "bsr", "bsc"):
    _to_layout(f"to_sparse_{_name}", getattr(device, f"sparse_{_name}"))
_to_layout("to_sparse_coo", sparse_coo)


@handles("to")
def _to(x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return x._with(x._stored.to(*args, **kwargs))


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "bool", "cpu", "clone", "contiguous"):
    HANDLERS[_name] = (lambda n: lambda x, **k: x._with(getattr(x._stored, n)()))(_name)
HANDLERS["type_as"] = lambda x, other: x._with(x._stored.to(other.dtype))


@handles("sparse_mask")
def _sparse_mask(x: Tensor, mask: SparseTensor) -> Any:
    """The elements of ``x`` at the places of ``mask``."""
    places = coo_of(mask)._places
    if isinstance(x, SparseTensor):
        x = dense_of(x)
    return mask._with(x[tuple(places)])


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
    if not _is_number(exponent) or float(exponent) <= 0:
        raise RuntimeError("pow of a sparse tensor takes a positive number: others change what is not stored")
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
    if _is_number(b) and not isinstance(b, SparseTensor):
        return a._with(a._stored * b)
    if isinstance(b, SparseTensor):
        return _like(a, _intersection(coalesce(coo_of(a)), coalesce(coo_of(b))))
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
    if not isinstance(a, SparseTensor) or isinstance(b, SparseTensor) or not _is_number(b):
        raise RuntimeError("Sparse division requires the divisor to be a number or a tensor without dimensions")
    whole = coalesce(a) if isinstance(a, CooTensor) and rounding_mode else a
    return whole._with(T.div(whole._stored, b, rounding_mode=rounding_mode))


@handles("add")
def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
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
    return _like(a, coalesce(made) if first._coalesced and second._coalesced else made)


@handles("sub", "subtract")
def _sub(a: Operand, b: Operand, alpha: Any = 1) -> Any:
    if isinstance(b, SparseTensor):
        return _add(a, b._with(b._stored * -1), alpha)
    return _add(a, b, -alpha)


HANDLERS["rsub"] = lambda a, b, alpha=1: _sub(b, a, alpha)
HANDLERS["radd"], HANDLERS["rmul"] = _add, _mul


@handles("equal")
def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(T.equal(*[dense_of(x) if isinstance(x, SparseTensor) else x for x in (a, b)]))


@handles("is_same_size")
def _is_same_size(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape


# ---- products


def multiplied(a: SparseTensor, b: Tensor) -> Tensor:
    """A sparse matrix times a dense one or a vector: rows of ``b`` are scaled and added where they belong."""
    if a.dim() != 2 or b.dim() not in (1, 2) or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_said(a)} and {_said(b)})")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    whole = coo_of(a)
    if whole._stored.dim() != 1:
        return dense_of(whole) @ b
    rows, columns = whole._places
    scaled = b[columns] * (whole._stored[:, None] if b.dim() == 2 else whole._stored)
    return T.zeros((a.shape[0], *b.shape[1:]), dtype=b.dtype).index_add(0, rows, scaled)


def _said(x: Tensor) -> str:
    return "x".join(map(str, x.shape))


@handles("mm", "matmul", "mv", "spmm", "smm", "sparse_mm")
def mm(a: Any, b: Any, reduce: str = "sum") -> Any:
    """The product of matrices, of which one at least is sparse; of two sparse ones it is sparse."""
    if reduce != "sum":
        return _reduced(a, b, reduce)
    if not isinstance(a, SparseTensor):
        return multiplied(_transposed(b), a.t()).t() if a.dim() == 2 else multiplied(_transposed(b), a)
    if isinstance(b, SparseTensor):
        return _like(a, _sparse_product(coo_of(a), coo_of(b)))
    if b.dim() == 3 or a.dim() == 3:
        return bmm(a, b)
    return multiplied(a, b)


smm = spmm = dsmm = mm
HANDLERS["rmatmul"] = lambda a, b: mm(b, a)


@handles("linear")
def _linear(x: SparseTensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = mm(x, weight.t())
    return found if bias is None else found + bias


def _sparse_product(a: CooTensor, b: CooTensor) -> CooTensor:
    """Each value of ``a`` meets the row of ``b`` that its column names."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_said(a)} and {_said(b)})")
    b = coalesce(b)
    begins = T.searchsorted(b._places[0].contiguous(), T.arange(b.shape[0] + 1))
    counts = (begins[1:] - begins[:-1])[a._places[1]]
    which = T.repeat_interleave(T.arange(counts.shape[0]), counts)
    before = T.cumsum(counts, 0) - counts
    at = T.arange(which.shape[0]) - before[which] + begins[a._places[1]][which]
    indices = T.stack([a._places[0][which], b._places[1][at]])
    return coalesce(coo(indices, a._stored[which] * b._stored[at], (a.shape[0], b.shape[1]), False))


def _reduced(a: SparseTensor, b: Tensor, reduce: str) -> Tensor:
    """The mean, greatest or least of what ``mm`` adds."""
    rows, columns = coo_of(a)._places
    scaled = b[columns] * coo_of(a)._stored[:, None]
    kind = {"mean": "mean", "amax": "amax", "amin": "amin"}[reduce]
    base = T.zeros((a.shape[0], b.shape[1]), dtype=b.dtype)
    return base.index_reduce(0, rows, scaled, kind, include_self=False)


def hspmm(mat1: SparseTensor, mat2: Tensor) -> CooTensor:
    """The product of a sparse matrix and a dense one, of which the rows that are not empty are stored, dense."""
    rows = T.unique(coo_of(mat1)._places[0])
    return coo(rows[None], multiplied(mat1, mat2)[rows], (mat1.shape[0], mat2.shape[1]), True)


hsmm = hspmm


@handles("bmm")
def bmm(a: SparseTensor, b: Tensor) -> Tensor:
    """Products of a batch of sparse matrices with dense ones."""
    batch, rows, columns = coo_of(a)._places
    scaled = b[batch, columns] * coo_of(a)._stored[:, None]
    flat = T.zeros((a.shape[0] * a.shape[1], b.shape[2]), dtype=b.dtype)
    return flat.index_add(0, batch * a.shape[1] + rows, scaled).reshape(a.shape[0], a.shape[1], b.shape[2])


@handles("addmm", "sspaddmm", "addmv")
def addmm(input: Operand, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * a @ b``."""
    product = mm(a, b)
    if isinstance(product, SparseTensor):
        product = product._with(product._stored * alpha)
        return _add(input._with(input._stored * beta) if isinstance(input, SparseTensor) else input * beta, product)
    return _add(product * alpha, input, beta) if isinstance(input, SparseTensor) else input * beta + product * alpha


sspaddmm = addmm


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:  # fmt: skip
    """``beta * input + alpha * mat1 @ mat2`` at the places of ``input``, and nowhere else."""
    if mat1.shape[1] != mat2.shape[0] or tuple(input.shape) != (mat1.shape[0], mat2.shape[1]):
        raise RuntimeError(f"sampled_addmm: shapes {_said(input)}, {_said(mat1)} and {_said(mat2)} do not fit")
    rows, columns = coo_of(input)._places
    return input._with(beta * input._stored + alpha * (mat1[rows] * mat2.t()[columns]).sum(1))


# ---- fewer elements


@handles("sum")
def sparse_sum(x: SparseTensor, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    """The sum of all, a dense number; over sparse dimensions what is left is sparse, over all of them dense."""
    if dtype is not None:
        x = x._with(x._stored.to(dtype))
    if dim is None or dim == ():
        return x._stored.sum()
    whole = coo_of(x)
    dims = sorted(d % x.dim() for d in ([dim] if isinstance(dim, int) else dim))
    if keepdim:
        raise RuntimeError("sum of a sparse tensor: keepdim is not to be had")
    count = whole._places.shape[0]
    values = whole._stored
    inner = [d - count + 1 for d in dims if d >= count]
    values = values.sum(inner) if inner else values
    kept = [d for d in range(count) if d not in dims]
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    if not kept:
        return values.sum(0)
    return coalesce(coo(whole._places[kept], values, shape, False))


@handles("mean")
def _mean(x: SparseTensor, dim: object = None, **kwargs: Any) -> Any:
    if dim is not None:
        raise NotImplementedError("mean of a sparse tensor over a dimension: divide sparse.sum by the size")
    return x._stored.sum() / x.numel()


@handles("norm")
def _norm(x: SparseTensor, p: Any = "fro", dim: object = None, **kwargs: Any) -> Tensor:
    if dim is not None:
        raise NotImplementedError("norm of a sparse tensor over a dimension")
    whole = coalesce(x) if isinstance(x, CooTensor) else x
    return T.norm(whole._stored, p)


def along(x: SparseTensor, dim: int, log: bool) -> Any:
    """Softmax over the stored values that differ in ``dim`` alone: what is not stored counts as minus infinity."""
    whole = coalesce(coo_of(x))
    dim %= x.dim()
    count = whole._places.shape[0]
    if dim >= count:
        fn = T.log_softmax if log else T.softmax
        return _like(x, whole._with(fn(whole._stored, dim - count + 1)))
    others = [d for d in range(count) if d != dim]
    group = flat_places(coo(whole._places[others], whole._stored, [x.shape[d] for d in others], False))
    groups, which = T.unique(group, return_inverse=True)
    empty = T.zeros((groups.shape[0], *whole._stored.shape[1:]), dtype=x.dtype)
    with no_grad():
        most = empty.index_reduce(0, which, whole._stored.detach(), "amax", include_self=False)
    moved = whole._stored - most[which]
    total = empty.index_add(0, which, moved.exp())
    values = moved - total[which].log() if log else moved.exp() / total[which]
    return _like(x, whole._with(values))


@handles("softmax")
def softmax(x: SparseTensor, dim: int, dtype: DType | None = None) -> Any:
    """Softmax over what is stored along ``dim``; what is not stored stays away."""
    return along(x if dtype is None else x._with(x._stored.to(dtype)), dim, False)


@handles("log_softmax")
def log_softmax(x: SparseTensor, dim: int, dtype: DType | None = None) -> Any:
    """The logarithm of ``softmax``."""
    return along(x if dtype is None else x._with(x._stored.to(dtype)), dim, True)


# ---- other shapes


def _transposed(x: SparseTensor) -> Any:
    if isinstance(x, CompressedTensor) and x.layout not in parts.IN_BLOCKS:
        turned = device.sparse_csc if x.layout is device.sparse_csr else device.sparse_csr
        return parts.compressed(x._compressed, x._plain, x._stored, x.shape[::-1], turned)
    if isinstance(x, CompressedTensor):
        return _in_layout(coo_of_dense(dense_of(x).t()), x.layout, tuple(x._stored.shape[-1:-3:-1]))
    return _transpose(x, 0, 1)


@handles("transpose", "swapaxes", "swapdims")
def _transpose(x: SparseTensor, dim0: int, dim1: int) -> Any:
    order = list(range(x.dim()))
    dim0, dim1 = dim0 % x.dim(), dim1 % x.dim()
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(x, order)


HANDLERS["t"] = HANDLERS["T"] = HANDLERS["mT"] = _transposed


@handles("permute")
def _permute(x: SparseTensor, *dims: Any) -> Any:
    order = [d % x.dim() for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if not isinstance(x, CooTensor):
        return _transposed(x) if order == [1, 0] else x
    count = x._places.shape[0]
    if sorted(order[:count]) != list(range(count)):
        raise RuntimeError("transpose of a sparse tensor: sparse and dense dimensions cannot change places")
    inner = [0, *[d - count + 1 for d in order[count:]]]
    values = x._stored.permute(inner)
    return coo(x._places[order[:count]], values, [x.shape[d] for d in order], False)


@handles("unsqueeze")
def _unsqueeze(x: CooTensor, dim: int) -> Any:
    dim %= x.dim() + 1
    shape = [*x.shape[:dim], 1, *x.shape[dim:]]
    count = x._places.shape[0]
    if dim > count:
        return coo(x._places, x._stored.unsqueeze(dim - count + 1), shape, x._coalesced)
    zeros = T.zeros(1, x._places.shape[1], dtype=int64)
    return coo(T.cat([x._places[:dim], zeros, x._places[dim:]]), x._stored, shape, x._coalesced)


@handles("cat", "concat", "concatenate")
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    found = [coo_of(x if isinstance(x, SparseTensor) else coo_of_dense(x)) for x in tensors]
    dim %= found[0].dim()
    count = found[0]._places.shape[0]
    shape = [*found[0].shape]
    if any(len(x.shape) != len(shape) or x._places.shape[0] != count for x in found):
        raise RuntimeError("cat of sparse tensors: they have different numbers of dimensions")
    shape[dim] = sum(x.shape[dim] for x in found)
    if dim >= count:
        raise NotImplementedError("cat of sparse tensors along a dense dimension")
    moved, before = [], 0
    for x in found:
        step = T.zeros(count, 1, dtype=int64)
        step[dim] = before
        moved.append(x._places + step)
        before += x.shape[dim]
    return coo(T.cat(moved, 1), T.cat([x._stored for x in found]), shape, False)


@handles("stack")
def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return _cat([_unsqueeze(coo_of(x), dim) for x in tensors], dim)


@handles("index_select")
def _index_select(x: SparseTensor, dim: int, index: Tensor) -> Any:
    whole = coo_of(x)
    dim %= x.dim()
    count = whole._places.shape[0]
    shape = [*x.shape]
    shape[dim] = index.shape[0]
    if dim >= count:
        return coo(whole._places, whole._stored.index_select(dim - count + 1, index), shape, whole._coalesced)
    index = T.where(index < 0, index + x.shape[dim], index)
    same = whole._places[dim][:, None] == index[None]
    at, place = T.nonzero(same).t()
    indices = whole._places[:, at].clone()
    indices[dim] = place
    return _like(x, coalesce(coo(indices, whole._stored[at], shape, False)))


@handles("select")
def _select(x: SparseTensor, dim: int, index: int) -> Any:
    dim %= x.dim()
    if not -x.shape[dim] <= index < x.shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    part = coo_of(_index_select(coo_of(x), dim, T.tensor([index % x.shape[dim]])))
    kept = [d for d in range(part._places.shape[0]) if d != dim]
    shape = [n for d, n in enumerate(part.shape) if d != dim]
    if not kept:
        return part._stored.sum(0)
    return (
        coo(part._places[kept], part._stored, shape, part._coalesced)
        if dim < part._places.shape[0]
        else coo(part._places, part._stored.squeeze(dim - part._places.shape[0] + 1), shape, part._coalesced)
    )


@handles("narrow", "narrow_copy")
def _narrow(x: SparseTensor, dim: int, start: int, length: int) -> Any:
    return _index_select(x, dim, T.arange(start, start + length))


@handles("getitem")
def _getitem(x: SparseTensor, index: object) -> Any:
    """Numbers, slices and one-dimensional index tensors, dimension by dimension."""
    steps = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [s for s in steps if not isinstance(s, Tensor)]:
        raise NotImplementedError("an ellipsis in the index of a sparse tensor")
    dim = 0
    found: Any = x
    for step in steps:
        if not isinstance(found, SparseTensor):
            return found[(slice(None),) * dim + tuple(steps[dim:])]
        if isinstance(step, int):
            found = _select(found, dim, step)
            continue
        if isinstance(step, slice):
            step = T.arange(found.shape[dim])[step]
        found = _index_select(found, dim, step if isinstance(step, Tensor) else T.tensor(step))
        dim += 1
    return found


@handles("zeros_like", "empty_like")
def _zeros_like(x: SparseTensor, dtype: DType | None = None, **_: Any) -> Any:
    empty = x._stored[:0].detach().to(dtype or x.dtype)
    return _like(x, coo(T.zeros(coo_of(x)._places.shape[0], 0, dtype=int64), empty, x.shape, True))


@handles("detach_")
def _detach_(x: SparseTensor) -> SparseTensor:
    x._stored = x._stored.detach()
    return x


@handles("zero")
def _zero(x: SparseTensor) -> SparseTensor:
    x._stored.zero_()
    return x


def _write(x: SparseTensor, made: object, name: str) -> SparseTensor:
    """New values for ``x``, in the memory of the old ones: recordings and views go on seeing them."""
    if not isinstance(made, SparseTensor):
        raise RuntimeError(f"{name}: the result is dense, and the tensor it is to be written to is sparse")
    old, new = coo_of(x)._places, coo_of(made)._places
    if made.layout is not x.layout or old.shape != new.shape or not T.equal(old, new):
        raise NotImplementedError(f"{name}: a sparse tensor keeps its places here; make a new one: a = a + b")
    x._stored.copy_(made._stored)
    return x


def in_place(name: str) -> None:
    """``name_`` writes what ``name`` gives into its first operand."""

    @handles(name + "_")
    def write(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        made = HANDLERS[name](x, *args, **kwargs)
        return _write(x, made, name + "_") if isinstance(x, SparseTensor) else x.copy_(made)


@handles("copy_")
def _copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    return _write(x, source, "copy_") if isinstance(x, SparseTensor) else x.copy_(dense_of(source))


for _name in ("add", "sub", "mul", "div", "neg", "abs", "sqrt", "relu", "sin", "tanh", "pow", "round", "floor", "ceil"):
    in_place(_name)
for _name in ("iadd", "isub", "imul", "itruediv"):
    HANDLERS[_name] = HANDLERS[{"itruediv": "div"}.get(_name, _name[1:]) + "_"]
