"""Published functions on sparse tensors: one entry for each, by name, in ``HANDLERS``.

All are compositions of operators on values and indices, so gradients and recordings work. Importing these modules
creates the entries.
"""

from __future__ import annotations

from tracecomp.sparse import arithmetic, forms, reductions, shapes
from tracecomp.sparse.products import dsmm, hsmm, hspmm, smm, spmm, sspaddmm
from tracecomp.sparse.tensors import HANDLERS

__all__ = [
    "HANDLERS", "arithmetic", "dsmm", "forms", "hsmm", "hspmm", "reductions", "shapes", "smm", "spmm", "sspaddmm",
]  # fmt: skip
