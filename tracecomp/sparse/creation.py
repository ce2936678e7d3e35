"""Sparse tensors from indices and values, from diagonals, and from and to SciPy's matrices."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

from tracecomp.eager import device as devices
from tracecomp.eager.device import Device, layout
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, int64
from tracecomp.sparse import tensors as parts
from tracecomp.sparse.forms import to_sparse
from tracecomp.sparse.tensors import BY_ROWS, IN_BLOCKS, CompressedTensor, CooTensor, SparseTensor, coo, coo_of


def _tensor(x: Tensor, dtype: DType | None = None) -> Tensor:
    return T.as_tensor(x) if dtype is None else T.as_tensor(x, dtype=dtype)


def sparse_coo_tensor(
    indices: Any, values: Any = None, size: Sequence[int] | None = None, *, dtype: DType | None = None,
    device: Device = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> CooTensor:  # fmt: skip
    """``values`` [n, dense dimensions...] at ``indices`` [sparse dimensions, n]; values at the same index are added.

    ``sparse_coo_tensor(size)`` is one of zeros. RuntimeError if indices are outside ``size``, are not integers, or
    differ in number from the values.
    """
    if values is None:
        shape = (indices,) if isinstance(indices, int) else tuple(indices)
        return coo(T.zeros(len(shape), 0, dtype=int64), T.zeros(0, dtype=dtype), shape, True)
    where, stored = _tensor(indices), _tensor(values, dtype)
    if where.is_floating_point() and where.numel():
        raise RuntimeError("indices must be an int64 tensor")
    where = where.to(int64)
    # A vector: indices of one sparse dimension, or the place of a single value.
    if where.dim() == 1:
        where = where[None] if stored.dim() else where[:, None]
    if stored.dim() == 0:
        stored = stored.expand(where.shape[1])
    if where.dim() != 2 or where.shape[1] != stored.shape[0]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {where.shape[-1]}, "
                           f"nnz from values: {stored.shape[0]}")  # fmt: skip
    count = where.shape[0]
    if size is None:
        if not where.shape[1]:
            raise RuntimeError("sparse_coo_tensor: pass size, as it cannot be inferred without values")
        # As in PyTorch, the least size that holds every index.
        size = [*[int(n) + 1 for n in where.amax(1)], *stored.shape[1:]]
    shape = tuple(int(n) for n in size)
    if len(shape) != count + stored.dim() - 1 or shape[count:] != tuple(stored.shape[1:]):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({count}) + dense_dim ({stored.dim() - 1}), "
                           f"but got {len(shape)}")  # fmt: skip
    _check_range(where, shape)
    made = coo(where.detach().clone(), stored if stored.requires_grad else stored.detach(), shape, bool(is_coalesced))
    return made.requires_grad_() if requires_grad else made


def _check_range(indices: Tensor, shape: Sequence[int]) -> None:
    for d in range(indices.shape[0] if indices.shape[1] else 0):
        low, high = int(indices[d].min()), int(indices[d].max())
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= shape[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found index {high}"
            )


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Sequence[int] | None = None, *,
    dtype: DType | None = None, layout: layout | None = None, device: Device = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> CompressedTensor:  # fmt: skip
    """A matrix in a compressed ``layout``: where rows (or columns) begin, the other index of each value, the values.

    RuntimeError where these do not describe a matrix.
    """
    if layout not in (*BY_ROWS, devices.sparse_csc, devices.sparse_bsc):
        raise RuntimeError(f"sparse_compressed_tensor: layout must be a compressed one, got {layout}")
    begins, plain, stored = (
        _tensor(compressed_indices).to(int64),
        _tensor(plain_indices).to(int64),
        _tensor(values, dtype),
    )
    if begins.dim() != 1 or plain.dim() != 1:
        raise NotImplementedError("batches of compressed sparse tensors are not supported")
    blocks = stored.shape[1:] if layout in IN_BLOCKS else (1, 1)
    outer = begins.shape[0] - 1
    if size is None:
        inner = int(plain.max()) + 1 if plain.numel() else 0
        size = (outer, inner) if layout in BY_ROWS else (inner, outer)
        size = (size[0] * blocks[0], size[1] * blocks[1])
    shape = tuple(int(n) for n in size)
    _check_compressed(begins, plain, stored, shape, layout)
    made = parts.compressed(begins, plain, stored if stored.requires_grad else stored.detach(), shape, layout)
    return made.requires_grad_() if requires_grad else made


def _check_compressed(begins: Tensor, plain: Tensor, values: Tensor, shape: Sequence[int], kind: layout) -> None:
    by_rows, block = kind in BY_ROWS, values.shape[1:] if kind in IN_BLOCKS else (1, 1)
    outer, inner = (0, 1) if by_rows else (1, 0)
    names = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    if begins.shape[0] != shape[outer] // block[outer] + 1:
        raise RuntimeError(f"{names[0]}.shape[-1] must be equal to {shape[outer] // block[outer] + 1}, "
                           f"but got {begins.shape[0]}")  # fmt: skip
    if plain.shape[0] != values.shape[0]:
        raise RuntimeError(f"number of elements in {names[1]} must be equal to that of values")
    steps = begins[1:] - begins[:-1]
    if int(begins[0]) != 0 or int(begins[-1]) != plain.shape[0] or bool((steps < 0).any()):
        raise RuntimeError(
            f"`{names[0]}[..., 0] == 0`, `{names[0]}[..., -1] == nnz` and sorted values between are not satisfied"
        )
    if plain.numel() and not (int(plain.min()) >= 0 and int(plain.max()) < shape[inner] // block[inner]):
        raise RuntimeError(f"`0 <= {names[1]} < {shape[inner] // block[inner]}` is not satisfied")


def _of_layout(kind: layout) -> Any:
    def make(begins: Any, plain: Any, values: Any, size: Any = None, **options: Any) -> CompressedTensor:
        return sparse_compressed_tensor(begins, plain, values, size, layout=kind, **options)

    short = str(kind).removeprefix("torch.")
    make.__name__ = make.__qualname__ = f"{short}_tensor"
    make.__doc__ = f"``sparse_compressed_tensor`` with ``layout=torch.{short}``."
    return make


sparse_csr_tensor = _of_layout(devices.sparse_csr)
sparse_csc_tensor = _of_layout(devices.sparse_csc)
sparse_bsr_tensor = _of_layout(devices.sparse_bsr)
sparse_bsc_tensor = _of_layout(devices.sparse_bsc)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: layout | None = None) -> SparseTensor:
    """A matrix with the rows of ``diagonals`` on the diagonals that ``offsets`` names (0 is the main one)."""
    rows = diagonals if diagonals.dim() == 2 else diagonals[None]
    indices, values = [], []
    for k, offset in enumerate(offsets.reshape(-1).tolist()):
        columns = T.arange(max(offset, 0), min(shape[1], shape[0] + offset, rows.shape[1]))
        indices.append(T.stack([columns - offset, columns]))
        values.append(rows[k, columns])
    made = coo(T.cat(indices, 1), T.cat(values), tuple(shape), False)
    return made if layout is None else to_sparse(made, layout=layout)


def from_scipy(matrix: Any) -> SparseTensor:
    """A SciPy matrix or array: CSR and CSC stay so, all others become COO."""
    if matrix.format in ("csr", "csc"):
        make = sparse_csr_tensor if matrix.format == "csr" else sparse_csc_tensor
        made: SparseTensor = make(
            np.array(matrix.indptr), np.array(matrix.indices), np.array(matrix.data), matrix.shape
        )
        return made
    found = matrix.tocoo()
    return sparse_coo_tensor(np.stack([found.row, found.col]), np.array(found.data), found.shape)


def to_scipy(x: SparseTensor) -> Any:
    """The SciPy array of a sparse matrix, in its layout. Needs scipy."""
    sparse = import_module("scipy.sparse")
    values = x._stored.detach().numpy()
    if isinstance(x, CompressedTensor) and x.layout not in IN_BLOCKS:
        kind = sparse.csr_array if x.layout is devices.sparse_csr else sparse.csc_array
        return kind((values, x._plain.numpy(), x._compressed.numpy()), tuple(x.shape))
    whole = coo_of(x)
    return sparse.coo_array((whole._stored.detach().numpy(), tuple(whole._places.numpy())), tuple(x.shape))


class check_sparse_tensor_invariants:
    """Sparse tensors made from indices are always checked here: this only answers as PyTorch's does."""

    def __init__(self, enable: bool = True) -> None:
        self.enable_ = enable

    @staticmethod
    def is_enabled() -> bool:
        """True."""
        return True

    @staticmethod
    def enable() -> None:
        """Nothing: they are checked."""

    @staticmethod
    def disable() -> None:
        """Nothing: they are checked all the same."""

    def __enter__(self) -> check_sparse_tensor_invariants:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was changed."""
