"""``torch.sparse``: tensors of which most elements are zero and only the others are stored. See ``docs/sparse.md``."""

from __future__ import annotations

from tracecomp.sparse.creation import (
    check_sparse_tensor_invariants,
    from_scipy,
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
    spdiags,
    to_scipy,
)
from tracecomp.sparse.products import addmm, bmm, mm, sampled_addmm
from tracecomp.sparse.reductions import log_softmax, softmax
from tracecomp.sparse.reductions import sparse_sum as sum
from tracecomp.sparse.typed import TYPED as _TYPED

__all__ = [
    "addmm", "bmm", "check_sparse_tensor_invariants", "from_scipy", "log_softmax", "mm", "sampled_addmm", "softmax",
    "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor",
    "sparse_csr_tensor", "spdiags", "sum", "to_scipy",
]  # fmt: skip

globals().update(_TYPED)
