"""The torch-named functions and Tensor methods. Importing the package attaches the methods to ``Tensor``."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import (
    foreach,
    internals,
    printing,
    sampling,
    sampling_in_place,
    settings,
    sparse_forms,
    storage,
    symbols,
    typed_storages,
)
from tracecomp.functional.creation import creation, legacy, sequences
from tracecomp.functional.elementwise import arithmetic, complexes, conversion, logic, pointwise, quantizing
from tracecomp.functional.indexing import gathering, indexing, masked, positions, writing
from tracecomp.functional.linalg import distances, einsum, factors, groups, linalg, lowrank, matmul, norms, solving
from tracecomp.functional.publish import NAMESPACES, complete
from tracecomp.functional.reductions import cumulative, distinct, reduction, searching, segments, sorting
from tracecomp.functional.shape import copies, joining, rearranging, shaping, strided, triangles
from tracecomp.functional.signal import fourier, spectra, windows
from tracecomp.functional.special import bessel, gamma, incomplete_gamma, polynomials, special
from tracecomp.functional.statistics import masking, statistics

__all__ = [
    "NAMESPACES",
    "arithmetic",
    "bessel",
    "complexes",
    "conversion",
    "copies",
    "creation",
    "cumulative",
    "distances",
    "distinct",
    "einsum",
    "factors",
    "foreach",
    "fourier",
    "gamma",
    "gathering",
    "groups",
    "incomplete_gamma",
    "indexing",
    "internals",
    "joining",
    "legacy",
    "linalg",
    "logic",
    "lowrank",
    "masked",
    "masking",
    "matmul",
    "norms",
    "pointwise",
    "polynomials",
    "positions",
    "printing",
    "quantizing",
    "rearranging",
    "reduction",
    "sampling",
    "sampling_in_place",
    "searching",
    "segments",
    "sequences",
    "settings",
    "shaping",
    "solving",
    "sorting",
    "sparse_forms",
    "special",
    "spectra",
    "statistics",
    "storage",
    "strided",
    "symbols",
    "triangles",
    "typed_storages",
    "windows",
    "writing",
]

# The functions of torch.functional.
_PUBLIC = (
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod",
    "cdist", "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank",
    "tensordot", "unique", "unique_consecutive", "unravel_index",
)  # fmt: skip
globals().update({name: NAMESPACES["torch"][name] for name in _PUBLIC if name in NAMESPACES["torch"]})

# The same tables document the methods that Tensor defines itself.
for _name, _method in vars(Tensor).items():
    if _name not in NAMESPACES["Tensor"]:
        complete(_method, f"Tensor.{_name}")
