"""Sparse tensors and their functions, under the names of ``torch.sparse``.

Coordinates (COO) and compressed rows, columns and blocks (CSR, CSC, BSR, BSC). Functions without a meaning for sparse
tensors raise NotImplementedError.

Example:
    >>> s = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> torch.sparse.mm(s, torch.ones(2, 1))
    tensor([[2.],
            [3.]])
"""

from __future__ import annotations

from typing import Any

from tracecomp.functional.publish import OF_LAYOUT, publish
from tracecomp.sparse.compressed import (
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from tracecomp.sparse.coo import sparse_coo_tensor
from tracecomp.sparse.functions import (
    log_softmax,
    sampled_addmm,
    softmax,
    spdiags,
    to_dense,
    to_sparse,
    to_sparse_bsc,
    to_sparse_bsr,
    to_sparse_coo,
    to_sparse_csc,
    to_sparse_csr,
)
from tracecomp.sparse.functions import sparse_mask as _sparse_mask
from tracecomp.sparse.tensor import HANDLERS, SparseTensor

__all__ = ["SparseTensor", "addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]
mm, addmm, sum = HANDLERS["mm"], HANDLERS["addmm"], HANDLERS["sum"]


def _as_sparse(name: str) -> Any:
    """``torch.zeros`` and ``torch.empty`` in a sparse layout: without entries."""

    def create(*size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False, **options: Any) -> Any:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        found = to_sparse(sparse_coo_tensor(tuple(shape), dtype=dtype), layout=layout)
        return found.requires_grad_(True) if requires_grad else found

    create.__name__ = name
    return create


for _name in ("zeros", "empty"):
    OF_LAYOUT[_name] = _as_sparse(_name)


for _fn in (
    to_dense, to_sparse, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, to_sparse_coo, _sparse_mask,
):  # fmt: skip
    publish(_fn, f"Tensor.{_fn.__name__}")
publish(HANDLERS["hspmm"], "torch.hspmm")
publish(mm, "torch.spmm")
for _create in (
    sparse_coo_tensor, sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor, sparse_bsc_tensor,
    sparse_compressed_tensor,
):  # fmt: skip
    publish(_create, f"torch.{_create.__name__}")
