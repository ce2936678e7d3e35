"""Sums, norms and softmax of the stored elements of sparse tensors."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType
from tracecomp.sparse.handlers import handles, like
from tracecomp.sparse.tensors import (
    CooTensor,
    SparseTensor,
    coalesce,
    coo,
    coo_of,
    flat_places,
)


@handles("sum")
def sparse_sum(x: SparseTensor, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    """The sum of all elements, a dense number; over sparse dimensions the result is sparse, over all of them dense."""
    if dtype is not None:
        x = x._with(x._stored.to(dtype))
    if dim is None or dim == ():
        return x._stored.sum()
    whole = coo_of(x)
    dims = sorted(d % x.dim() for d in ([dim] if isinstance(dim, int) else dim))
    if keepdim:
        raise RuntimeError("sum(): keepdim is not supported for sparse tensors")
    count = whole._places.shape[0]
    values = whole._stored
    inner = [d - count + 1 for d in dims if d >= count]
    values = values.sum(inner) if inner else values
    kept = [d for d in range(count) if d not in dims]
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    if not kept:
        return values.sum(0)
    return coalesce(coo(whole._places[kept], values, shape, False))


@handles("any")
def _any(x: SparseTensor) -> Any:
    whole = coalesce(x) if isinstance(x, CooTensor) else x
    return (whole._stored != 0).any()


@handles("mean")
def _mean(x: SparseTensor, dim: object = None, **kwargs: Any) -> Any:
    if dim is not None:
        raise NotImplementedError("mean(): dim is not supported for sparse tensors. Divide sparse.sum by the size")
    return x._stored.sum() / x.numel()


@handles("norm")
def _norm(x: SparseTensor, p: Any = "fro", dim: object = None, **kwargs: Any) -> Tensor:
    if dim is not None:
        raise NotImplementedError("norm(): dim is not supported for sparse tensors")
    whole = coalesce(x) if isinstance(x, CooTensor) else x
    return T.norm(whole._stored, p)


def along(x: SparseTensor, dim: int, log: bool) -> Any:
    """Softmax over the stored values along ``dim``: missing elements count as minus infinity."""
    whole = coalesce(coo_of(x))
    dim %= x.dim()
    count = whole._places.shape[0]
    if dim >= count:
        fn = T.log_softmax if log else T.softmax
        return like(x, whole._with(fn(whole._stored, dim - count + 1)))
    others = [d for d in range(count) if d != dim]
    group = flat_places(coo(whole._places[others], whole._stored, [x.shape[d] for d in others], False))
    groups, which = T.unique(group, return_inverse=True)
    empty = T.zeros((groups.shape[0], *whole._stored.shape[1:]), dtype=x.dtype)
    with no_grad():
        most = empty.index_reduce(0, which, whole._stored.detach(), "amax", include_self=False)
    moved = whole._stored - most[which]
    total = empty.index_add(0, which, moved.exp())
    values = moved - total[which].log() if log else moved.exp() / total[which]
    return like(x, whole._with(values))


@handles("softmax")
def softmax(x: SparseTensor, dim: int, dtype: DType | None = None) -> Any:
    """Softmax over the stored values along ``dim``; missing elements stay missing."""
    return along(x if dtype is None else x._with(x._stored.to(dtype)), dim, False)


@handles("log_softmax")
def log_softmax(x: SparseTensor, dim: int, dtype: DType | None = None) -> Any:
    """The logarithm of ``softmax``."""
    return along(x if dtype is None else x._with(x._stored.to(dtype)), dim, True)
