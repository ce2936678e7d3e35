"""Products of groups of rows with a matrix each, by the routine of single products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager_kernels.products import add_products, rows_by_matrices
from tracecomp.ir.types import compute_dtype, from_numpy_dtype
from tracecomp.ops.linalg.groups import groups_of

Array = np.ndarray[Any, Any]


def grouped_product(x: Array, y: Array, ends: Array) -> Array:
    """``grouped_mm``, with the bits of compiled products."""
    dtype, rows = x.dtype, y.ndim == 3
    wide = compute_dtype(from_numpy_dtype(dtype)).numpy
    groups = groups_of(ends, len(x) if rows else len(y))
    x = x.astype(wide, copy=False)
    out = np.zeros((len(x), y.shape[2]) if rows else (len(ends), len(x), y.shape[1]), wide)
    if not out.size or not x.size:  # sums of no terms, or no results
        return out.astype(dtype, copy=False)
    if rows:
        rows_by_matrices(x, y, groups, out)
    else:
        y = y.astype(wide, copy=False)
        for number, start, end in groups:
            add_products(x[:, start:end], y[start:end], "mk,kn->mn", out[number])
    return out.astype(dtype, copy=False)
