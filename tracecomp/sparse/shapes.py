"""Sparse tensors transposed, joined, and parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.eager import device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, int64
from tracecomp.sparse import tensors as parts
from tracecomp.sparse.forms import in_layout
from tracecomp.sparse.handlers import handles, like
from tracecomp.sparse.tensors import (
    CompressedTensor,
    CooTensor,
    SparseTensor,
    coalesce,
    coo,
    coo_of,
    coo_of_dense,
    dense_of,
)


def transposed(x: SparseTensor) -> Any:
    if isinstance(x, CompressedTensor) and x.layout not in parts.IN_BLOCKS:
        turned = device.sparse_csc if x.layout is device.sparse_csr else device.sparse_csr
        return parts.compressed(x._compressed, x._plain, x._stored, x.shape[::-1], turned)
    if isinstance(x, CompressedTensor):
        return in_layout(coo_of_dense(dense_of(x).t()), x.layout, tuple(x._stored.shape[-1:-3:-1]))
    return _transpose(x, 0, 1)


@handles("transpose", "swapaxes", "swapdims")
def _transpose(x: SparseTensor, dim0: int, dim1: int) -> Any:
    order = list(range(x.dim()))
    dim0, dim1 = dim0 % x.dim(), dim1 % x.dim()
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(x, order)


@handles("t")
def _t(x: SparseTensor) -> Any:
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {x.dim()}D")
    return transposed(x) if x.dim() == 2 else x


@handles("T")
def _reversed(x: SparseTensor) -> Any:
    return transposed(x) if x.dim() == 2 else _permute(x, list(range(x.dim()))[::-1])


@handles("mT")
def _matrix_transposed(x: SparseTensor) -> Any:
    if x.dim() < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {x.dim()}-D tensor.")
    return transposed(x) if x.dim() == 2 else _transpose(x, -2, -1)


@handles("mH", "adjoint")
def _adjoint(x: SparseTensor) -> Any:
    turned = _matrix_transposed(x)
    return turned._with(turned._stored.conj())


@handles("H")
def _h(x: SparseTensor) -> Any:
    if x.dim() not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {x.dim()}-D tensor.")
    return _adjoint(x) if x.dim() else x


@handles("movedim", "moveaxis")
def _movedim(x: SparseTensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    moved = [d % x.dim() for d in ([source] if isinstance(source, int) else source)]
    places = [d % x.dim() for d in ([destination] if isinstance(destination, int) else destination)]
    others = iter([d for d in range(x.dim()) if d not in moved])
    return _permute(x, [moved[places.index(d)] if d in places else next(others) for d in range(x.dim())])


@handles("permute")
def _permute(x: SparseTensor, *dims: Any) -> Any:
    order = [d % x.dim() for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if sorted(order) != list(range(x.dim())):
        raise RuntimeError(f"permute(): {order} is not a permutation of {x.dim()} dimensions")
    if not isinstance(x, CooTensor):
        return transposed(x) if order == [1, 0] else x
    count = x._places.shape[0]
    if sorted(order[:count]) != list(range(count)):
        raise RuntimeError("transpose of a sparse tensor: sparse and dense dimensions cannot be exchanged")
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
        raise RuntimeError("cat(): sparse tensors must have equal numbers of sparse and dense dimensions")
    shape[dim] = sum(x.shape[dim] for x in found)
    if dim >= count:
        raise NotImplementedError("cat(): sparse tensors cannot be concatenated along a dense dimension")
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
    return like(x, coalesce(coo(indices, whole._stored[at], shape, False)))


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


@handles("unbind")
def _unbind(x: SparseTensor, dim: int = 0) -> tuple[Any, ...]:
    return tuple([_select(x, dim, i) for i in range(x.shape[dim])])


@handles("narrow", "narrow_copy")
def _narrow(x: SparseTensor, dim: int, start: int, length: int) -> Any:
    return _index_select(x, dim, T.arange(start, start + length))


@handles("getitem")
def _getitem(x: SparseTensor, index: object) -> Any:
    """Numbers, slices, None, an ellipsis and one-dimensional index tensors, dimension by dimension."""
    steps = list(index) if isinstance(index, tuple) else [index]
    there = [i for i, step in enumerate(steps) if step is Ellipsis]
    if there:
        taken = sum(step is not None and step is not Ellipsis for step in steps)
        steps[there[0] : there[0] + 1] = [slice(None)] * (x.dim() - taken)
    if any(isinstance(step, bool) or step is Ellipsis for step in steps):
        raise NotImplementedError("indexing a sparse tensor with True, False or two ellipses is not supported")
    dim = 0
    found: Any = x
    for step in steps:
        if not isinstance(found, SparseTensor):
            return found[(slice(None),) * dim + tuple(steps[dim:])]
        if isinstance(step, int):
            found = _select(found, dim, step)
            continue
        if step is None:
            found = _unsqueeze(coo_of(found), dim)
            dim += 1
            continue
        if isinstance(step, slice) and step == slice(None):
            dim += 1
            continue
        if isinstance(step, slice):
            step = T.arange(found.shape[dim])[step]
        found = _index_select(found, dim, step if isinstance(step, Tensor) else T.tensor(step))
        dim += 1
    return found


@handles("resize_as_", "resize_as_sparse_")
def _resize_as(x: SparseTensor, other: Tensor) -> Any:
    if x.shape == other.shape:
        return x
    if not isinstance(x, CooTensor) or not isinstance(other, CooTensor) or x._stored.shape[0]:
        raise NotImplementedError("resize_as_(): only a sparse COO tensor without values can change its shape")
    # Without values there is no memory that others could see, so all parts are replaced.
    empty, places = other._stored[:0].detach().to(x.dtype), other._places[:, :0]
    made = coo(places, empty, other.shape, True)
    x._data, x._places, x._stored, x._coalesced = made._data, places, empty, True
    return x


@handles("zeros_like", "empty_like")
def _zeros_like(x: SparseTensor, dtype: DType | None = None, **_: Any) -> Any:
    empty = x._stored[:0].detach().to(dtype or x.dtype)
    return like(x, coo(T.zeros(coo_of(x)._places.shape[0], 0, dtype=int64), empty, x.shape, True))
