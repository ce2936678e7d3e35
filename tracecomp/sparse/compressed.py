"""Compressed sparse tensors: by rows (CSR), by columns (CSC), and the same with dense blocks (BSR, BSC).

``_pointers`` (rows + 1) says where the entries of each row begin, ``_others`` (nnz) in which column each lies; for CSC
and BSC rows and columns change places. Values are (nnz,), of blocks (nnz, height, width). Arithmetic is that of
coordinates, so a sum has the same bits in every layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.device import layout, sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, int64
from tracecomp.sparse.coo import CooTensor
from tracecomp.sparse.tensor import SparseTensor, numbers, taken


class CompressedTensor(SparseTensor):
    """A matrix whose entries lie row by row (or column by column), single or as blocks."""

    _pointers: Tensor
    _others: Tensor
    _kind: layout = sparse_csr
    by_rows = True
    blocked = False

    @classmethod
    def of(cls, size: Sequence[int], parts: Sequence[Tensor], state: Any = None) -> Any:
        """The tensor of ``size`` with (pointers, the other index, values)."""
        found = cls._made(tuple(size), parts[2])
        found._pointers, found._others = parts[0], parts[1]
        return found

    def parts(self) -> tuple[Tensor, ...]:
        return (self._pointers, self._others, self._values_)

    def like(self, values: Tensor) -> Any:
        return self.of(tuple(self.shape), (self._pointers, self._others, values))

    def _nnz(self) -> int:
        return int(self._others.shape[0])

    def sparse_dim(self) -> int:
        return 2

    def dense_dim(self) -> int:
        return 0

    def values(self) -> Tensor:
        """One value, or block, for each entry."""
        return self._values_

    def _part(self, part: Tensor, name: str, by_rows: bool) -> Tensor:
        if self.by_rows is not by_rows:
            kinds = "row compressed" if by_rows else "column compressed"
            raise RuntimeError(f"{name} expected sparse {kinds} tensor layout but got {self._kind!r}")
        return part

    def crow_indices(self) -> Tensor:
        """Where the entries of each row begin, and the end."""
        return self._part(self._pointers, "crow_indices", True)

    def col_indices(self) -> Tensor:
        """The column of each entry."""
        return self._part(self._others, "col_indices", True)

    def ccol_indices(self) -> Tensor:
        """Where the entries of each column begin, and the end."""
        return self._part(self._pointers, "ccol_indices", False)

    def row_indices(self) -> Tensor:
        """The row of each entry."""
        return self._part(self._others, "row_indices", False)

    def block(self) -> tuple[int, int]:
        """Height and width of a block."""
        return (int(self._values_.shape[1]), int(self._values_.shape[2])) if self.blocked else (1, 1)

    def coo(self) -> CooTensor:
        """The same tensor as coordinates of single elements; coalesced."""
        counts = self._pointers[1:] - self._pointers[:-1]
        lines = T.repeat_interleave(T.arange(counts.shape[0]), counts)
        pair = (lines, self._others) if self.by_rows else (self._others, lines)
        size = tuple(self.shape)
        if not self.blocked:
            found = CooTensor.of(size, (T.stack(list(pair)), self._values_), self.by_rows)
            return found.coalesce()
        height, width = self.block()
        inner = T.meshgrid(T.arange(height), T.arange(width), indexing="ij")
        rows = (pair[0].reshape(-1, 1, 1) * height + inner[0]).reshape(-1)
        columns = (pair[1].reshape(-1, 1, 1) * width + inner[1]).reshape(-1)
        return CooTensor.of(size, (T.stack([rows, columns]), self._values_.reshape(-1))).coalesce()

    def from_coo(self, coo: CooTensor) -> Any:
        return compressed(coo, type(self), self.block())


class CsrTensor(CompressedTensor):
    """By rows."""


class CscTensor(CompressedTensor):
    """By columns."""

    _kind = sparse_csc
    by_rows = False


class BsrTensor(CompressedTensor):
    """By rows of blocks."""

    _kind = sparse_bsr
    blocked = True


class BscTensor(CompressedTensor):
    """By columns of blocks."""

    _kind = sparse_bsc
    by_rows = False
    blocked = True


KINDS: dict[layout, type[CompressedTensor]] = {c._kind: c for c in (CsrTensor, CscTensor, BsrTensor, BscTensor)}


def compressed(coo: CooTensor, kind: type[CompressedTensor], block: tuple[int, int] = (1, 1)) -> Any:
    """A matrix of coordinates in a compressed layout. RuntimeError unless it is one, and blocks fit in."""
    if coo.ndim != 2 or coo.sparse_dim() != 2:
        raise RuntimeError(f"to_sparse: only matrices of scalars are compressed here, got size {list(coo.shape)}")
    coo = coo.coalesce()
    rows, columns = coo.shape
    if kind.blocked:
        if rows % block[0] or columns % block[1]:
            raise RuntimeError(
                f"tensor sparse size {list(coo.shape)} must be divisible by given blocksize {list(block)}"
            )
        return _blocks(coo, kind, block)
    places = numbers(coo._places, "to_sparse()")
    major, minor = (places[0], places[1]) if kind.by_rows else (places[1], places[0])
    values, columns_of = coo._values_, minor
    if not kind.by_rows:
        order = np.argsort(major, kind="stable")
        values, columns_of = values.index_select(0, wrap(order)), minor[order]
    lines = rows if kind.by_rows else columns
    return kind.of((rows, columns), (wrap(_pointers(major, lines)), wrap(columns_of.copy()), values))


def _pointers(major: np.ndarray[Any, Any], lines: int) -> np.ndarray[Any, Any]:
    return np.concatenate([[0], np.cumsum(np.bincount(major, minlength=lines))]).astype(np.int64)


def _blocks(coo: CooTensor, kind: type[CompressedTensor], block: tuple[int, int]) -> Any:
    places = numbers(coo._places, "to_sparse_bsr()")
    height, width = block
    at = places // np.array([[height], [width]])
    count = coo.shape[1] // width if kind.by_rows else coo.shape[0] // height
    keys = at[0] * count + at[1] if kind.by_rows else at[1] * count + at[0]
    unique, where = np.unique(keys, return_inverse=True)
    inside = (where * height + places[0] % height) * width + places[1] % width
    zeros = T.zeros((len(unique) * height * width,), dtype=coo.dtype)
    values = zeros.index_add(0, wrap(inside.astype(np.int64)), coo._values_).reshape(len(unique), height, width)
    lines = coo.shape[0] // height if kind.by_rows else coo.shape[1] // width
    pointers = _pointers(unique // max(count, 1), lines)
    return kind.of(tuple(coo.shape), (wrap(pointers), wrap((unique % max(count, 1)).astype(np.int64)), values))


def _index(x: Any) -> Tensor:
    return (x.detach() if isinstance(x, Tensor) else T.tensor(x)).to(int64)


def _checked(
    kind: type[CompressedTensor], size: tuple[int, ...], pointers: Tensor, others: Tensor, values: Tensor
) -> None:
    """RuntimeError when the parts of a compressed tensor contradict each other."""
    name, other = ("crow", "col") if kind.by_rows else ("ccol", "row")
    block = tuple(values.shape[1:3]) if kind.blocked else (1, 1)
    pair = (size[0] // block[0], size[1] // block[1])
    lines, most = pair if kind.by_rows else pair[::-1]
    begins, places = numbers(pointers, "sparse_compressed_tensor()"), numbers(others, "sparse_compressed_tensor()")
    if len(begins) != lines + 1:
        raise RuntimeError(
            f"{name}_indices.shape[-1] must be equal to the number of rows or columns plus 1 (={lines + 1}), but got "
            f"{len(begins)}"
        )
    if begins[0] != 0:
        raise RuntimeError(f"`{name}_indices[..., 0] == 0` is not satisfied.")
    if begins[-1] != len(places):
        raise RuntimeError(f"`{name}_indices[..., -1] == nnz` is not satisfied.")
    if (np.diff(begins) < 0).any():
        raise RuntimeError(f"`0 <= {name}_indices[..., 1:] - {name}_indices[..., :-1]` is not satisfied.")
    if places.min(initial=0) < 0 or places.max(initial=-1) >= most:
        raise RuntimeError(f"`0 <= {other}_indices < {most}` is not satisfied.")
    if values.shape[0] != len(places):
        raise RuntimeError(
            f"number of entries in {other}_indices ({len(places)}) and in values ({values.shape[0]}) differ"
        )


def make(
    kind: type[CompressedTensor], pointers: Any, others: Any, values: Any, size: Any, dtype: DType | None,
    requires_grad: bool,
) -> Any:  # fmt: skip
    """A compressed tensor of its parts; without a size, the smallest that holds them."""
    begins, places = _index(pointers), _index(others)
    given = values if isinstance(values, Tensor) else T.tensor(values, dtype=dtype)
    given = given.to(dtype) if dtype is not None else given
    if size is None:
        block = tuple(given.shape[1:3]) if kind.blocked else (1, 1)
        most = int(numbers(places, "sparse_compressed_tensor()").max(initial=-1)) + 1
        pair = ((begins.shape[0] - 1), most) if kind.by_rows else (most, begins.shape[0] - 1)
        size = (pair[0] * block[0], pair[1] * block[1])
    if len(size) != 2:
        raise RuntimeError(f"compressed sparse tensors are matrices here, got size {list(size)}")
    _checked(kind, tuple(size), begins, places, given)
    return kind.of(tuple(size), (begins, places, taken(given, requires_grad)))


def _factory(kind: type[CompressedTensor], public: str, pointers: str, others: str) -> Any:
    def create(
        *args: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
        check_invariants: bool | None = None, pin_memory: bool = False, **named: Any,
    ) -> Any:  # fmt: skip
        order = (pointers, others, "values", "size")
        given = dict(zip(order, args, strict=False)) | named
        unknown = set(given) - set(order)
        if unknown or not set(order[:3]) <= set(given):
            raise TypeError(f"{public}(): expected {', '.join(order)}, got {', '.join(sorted(given))}")
        return make(kind, given[pointers], given[others], given["values"], given.get("size"), dtype, requires_grad)

    create.__name__ = create.__qualname__ = public
    create.__doc__ = f"{public}({pointers}, {others}, values, size=None): a sparse matrix in layout {kind._kind!r}."
    return create


sparse_csr_tensor = _factory(CsrTensor, "sparse_csr_tensor", "crow_indices", "col_indices")
sparse_csc_tensor = _factory(CscTensor, "sparse_csc_tensor", "ccol_indices", "row_indices")
sparse_bsr_tensor = _factory(BsrTensor, "sparse_bsr_tensor", "crow_indices", "col_indices")
sparse_bsc_tensor = _factory(BscTensor, "sparse_bsc_tensor", "ccol_indices", "row_indices")


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None,
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    """A compressed sparse matrix in ``layout``; RuntimeError for one that is not compressed."""
    if layout not in KINDS:
        raise RuntimeError(f"sparse_compressed_tensor expected a sparse compressed layout, got {layout!r}")
    return make(KINDS[layout], compressed_indices, plain_indices, values, size, dtype, requires_grad)
