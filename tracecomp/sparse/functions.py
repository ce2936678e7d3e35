"""What published functions do with sparse tensors: one entry for each, found by name in ``HANDLERS``.

Everything is made of operators on values and indices, so gradients and recordings follow. The entries are made where
these modules are imported.
"""

from __future__ import annotations

from tracecomp.sparse import arithmetic, forms, reductions, shapes
from tracecomp.sparse.products import dsmm, hsmm, hspmm, smm, spmm, sspaddmm
from tracecomp.sparse.tensors import HANDLERS

__all__ = [
    "HANDLERS", "arithmetic", "dsmm", "forms", "hsmm", "hspmm", "reductions", "shapes", "smm", "spmm", "sspaddmm",
]  # fmt: skip
