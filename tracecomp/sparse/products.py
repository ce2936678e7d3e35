"""Products of sparse matrices with dense and with sparse ones."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.promotion import Operand
from tracecomp.sparse.arithmetic import add
from tracecomp.sparse.handlers import handles, like
from tracecomp.sparse.shapes import transposed
from tracecomp.sparse.tensors import (
    HANDLERS,
    CooTensor,
    SparseTensor,
    coalesce,
    coo,
    coo_of,
    dense_of,
)


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
        return multiplied(transposed(b), a.t()).t() if a.dim() == 2 else multiplied(transposed(b), a)
    if isinstance(b, SparseTensor):
        return like(a, _sparse_product(coo_of(a), coo_of(b)))
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
    """The mean, greatest or least of the products that ``mm`` adds."""
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
        return add(input._with(input._stored * beta) if isinstance(input, SparseTensor) else input * beta, product)
    return add(product * alpha, input, beta) if isinstance(input, SparseTensor) else input * beta + product * alpha


sspaddmm = addmm


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:  # fmt: skip
    """``beta * input + alpha * mat1 @ mat2`` only at the places of ``input``."""
    if mat1.shape[1] != mat2.shape[0] or tuple(input.shape) != (mat1.shape[0], mat2.shape[1]):
        raise RuntimeError(f"sampled_addmm: shapes {_said(input)}, {_said(mat1)} and {_said(mat2)} do not fit")
    rows, columns = coo_of(input)._places
    return input._with(beta * input._stored + alpha * (mat1[rows] * mat2.t()[columns]).sum(1))
