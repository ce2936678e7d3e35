"""Sparse tensors by coordinates (COO): places (sparse_dim, nnz), values (nnz, *dense dimensions)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.device import sparse_coo
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, int64
from tracecomp.sparse.tensor import SparseTensor, numbers, taken


class CooTensor(SparseTensor):
    """A sparse tensor by coordinates. Values at one place count as their sum; ``coalesce`` makes them one."""

    _kind = sparse_coo
    _places: Tensor
    _coalesced: bool

    @classmethod
    def of(cls, size: Sequence[int], parts: Sequence[Tensor], coalesced: Any = False) -> CooTensor:
        """The tensor of ``size`` with (places, values)."""
        found: CooTensor = cls._made(tuple(size), parts[1])
        found._places, found._coalesced = parts[0], bool(coalesced)
        return found

    def parts(self) -> tuple[Tensor, ...]:
        return (self._places, self._values_)

    def _state(self) -> bool:
        return self._coalesced

    def like(self, values: Tensor) -> CooTensor:
        return self.of((*self.shape[: self.sparse_dim()], *values.shape[1:]), (self._places, values), self._coalesced)

    def coo(self) -> CooTensor:
        return self

    def from_coo(self, coo: Any) -> Any:
        return coo

    # ---- what it is made of

    def sparse_dim(self) -> int:
        return int(self._places.shape[0])

    def dense_dim(self) -> int:
        return self._values_.ndim - 1

    def _nnz(self) -> int:
        return int(self._values_.shape[0])

    def is_coalesced(self) -> bool:
        """Whether places are in order and each is there once."""
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> CooTensor:
        self._coalesced = coalesced
        return self

    def _indices(self) -> Tensor:
        return self._places

    def _values(self) -> Tensor:
        return self._values_.detach()

    def indices(self) -> Tensor:
        """The places; RuntimeError unless coalesced."""
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._places

    def values(self) -> Tensor:
        """The values; RuntimeError unless coalesced."""
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._values_

    def coalesce(self) -> CooTensor:
        """The same tensor with places in order, each once: values at one place are added up, first to last."""
        if self._coalesced:
            return self
        first, where, kept = _unique(numbers(self._places, "coalesce()"), self.shape[: self.sparse_dim()])
        if len(kept) == len(where):
            values = self._values_.index_select(0, wrap(kept))
        else:
            zeros = T.zeros((first.shape[1], *self._values_.shape[1:]), dtype=self.dtype)
            values = zeros.index_add(0, wrap(where), self._values_)
        return self.of(self.shape, (wrap(first), values), True)


def flat(places: np.ndarray[Any, Any], size: Sequence[int]) -> np.ndarray[Any, Any]:
    """The number, in row-major order, of each place."""
    found = np.zeros(places.shape[1], np.int64)
    for row, n in zip(places, size, strict=True):
        found = found * n + row
    return found


def _unique(places: np.ndarray[Any, Any], size: Sequence[int]) -> tuple[Any, Any, Any]:
    """The distinct places in order, for each entry the number of its place, and for each place an entry."""
    _, kept, where = np.unique(flat(places, size), return_index=True, return_inverse=True)
    return np.ascontiguousarray(places[:, kept]), where.reshape(-1).astype(np.int64), kept.astype(np.int64)


def checked_size(places: Tensor, values: Tensor, size: Sequence[int] | None) -> tuple[int, ...]:
    """The size that was given or that the places need; RuntimeError when they do not go together."""
    if places.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(places.shape)}")
    if values.ndim == 0 or values.shape[0] != places.shape[1]:
        got = 1 if values.ndim == 0 else values.shape[0]
        raise RuntimeError(
            f"number of entries in indices ({places.shape[1]}) and in values ({got}) differ: indices are "
            f"{list(places.shape)}, values {list(values.shape)}"
        )
    array = numbers(places, "sparse_coo_tensor()")
    low = array.min(axis=1, initial=0)
    for dim, least in enumerate(low):
        if least < 0:
            raise RuntimeError(f"found negative index {int(least)} for dim {dim}")
    if size is None:
        if places.shape[1] == 0 and places.shape[0]:
            return (*(0,) * places.shape[0], *values.shape[1:])
        return (*(int(n) + 1 for n in array.max(axis=1)), *values.shape[1:])
    size = tuple(size)
    if len(size) != places.shape[0] + values.ndim - 1:
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({places.shape[0]}) + dense_dim ({values.ndim - 1}), but got "
            f"{len(size)}"
        )
    if size[places.shape[0] :] != tuple(values.shape[1:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[places.shape[1], *size[places.shape[0] :]]}, "
            f"got {list(values.shape)}"
        )
    for dim, (n, most) in enumerate(zip(size, array.max(axis=1, initial=-1), strict=False)):
        if most >= n:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {n} but found index {int(most)}"
            )
    return size


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None, device: Any = None,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None,
    pin_memory: bool = False,
) -> CooTensor:  # fmt: skip
    """A sparse tensor of ``values`` (nnz, *dense) at places ``indices`` (sparse_dim, nnz); or empty, of ``size``.

    RuntimeError when places lie outside of ``size`` or numbers of entries differ.

    Example:
        >>> torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    if values is None and indices is not None and size is None:
        indices, size = None, indices
    if indices is None:
        shape = tuple(size)
        places = T.zeros((len(shape), 0), dtype=int64)
        found = CooTensor.of(shape, (places, T.zeros((0,), dtype=dtype)), True)
        return found.requires_grad_(True) if requires_grad else found
    places = (indices.detach() if isinstance(indices, Tensor) else T.tensor(indices)).to(int64)
    given = values if isinstance(values, Tensor) else T.tensor(values, dtype=dtype)
    given = given.to(dtype) if dtype is not None else given
    if given.ndim == 0 and places.ndim == 2:
        given = given.expand(places.shape[1])
    shape = checked_size(places, given, size)
    return CooTensor.of(shape, (places, taken(given, requires_grad)), is_coalesced)


def dense_to_coo(x: Tensor, sparse_dim: int | None = None) -> CooTensor:
    """What is not zero in a dense tensor, by its first ``sparse_dim`` dimensions."""
    count = x.ndim if sparse_dim is None else sparse_dim
    if not 0 <= count <= x.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [0, {x.ndim}], but got {count})")
    array = x.detach()._read("to_sparse()")
    present = (array != 0).any(axis=tuple(range(count, x.ndim))) if count < x.ndim else array != 0
    places = np.stack(np.nonzero(present)).astype(np.int64) if count else np.zeros((0, int(present)), np.int64)
    head = tuple(x.shape[:count])
    rows = x.reshape(math.prod(head), *x.shape[count:])
    values = rows.index_select(0, wrap(flat(places, head)))
    return CooTensor.of(tuple(x.shape), (wrap(places), values), True)


def coo_to_dense(x: CooTensor) -> Tensor:
    """All elements; values at one place are added up, first to last."""
    head = tuple(x.shape[: x.sparse_dim()])
    at = flat_places(x)
    zeros = T.zeros((math.prod(head), *x._values_.shape[1:]), dtype=x.dtype)
    found = zeros.index_put((at,), x._values_) if x.dtype.kind == "bool" else zeros.index_add(0, at, x._values_)
    return found.reshape(tuple(x.shape))


def flat_places(x: CooTensor) -> Tensor:
    """The number, in row-major order, of each place, as a tensor."""
    with no_grad():
        at = T.zeros((x._nnz(),), dtype=int64)
        for dim in range(x.sparse_dim()):
            at = at * x.shape[dim] + x._places[dim]
    return at
