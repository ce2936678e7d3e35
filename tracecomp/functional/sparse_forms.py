"""Methods of tensors about sparse forms: conversions load ``tracecomp.sparse``, queries are answered here."""

from __future__ import annotations

from typing import Any

from tracecomp.base.lazy_names import load_module
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.publish import publish

_CONVERSIONS = (
    "sparse_mask", "to_sparse", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr",
)  # fmt: skip
_COO_ONLY = ("_indices", "_values", "coalesce", "indices", "is_coalesced")
_COMPRESSED_ONLY = ("ccol_indices", "col_indices", "crow_indices", "row_indices")


def _conversion(name: str) -> None:
    def convert(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        # ``tracecomp.sparse`` is in a higher layer, and loaded by the first conversion: few programs use it.
        return load_module("tracecomp.sparse.functions").HANDLERS[name](self, *args, **kwargs)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = (
        "The elements at the indices of ``mask``, a sparse tensor."
        if name == "sparse_mask"
        else f"The nonzero elements, as a sparse tensor (``{name}`` names the layout); see ``torch.sparse``."
    )
    publish(convert, f"Tensor.{name}")


def _refused(name: str, kind: str) -> None:
    def refuse(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected {kind} tensor layout but got Strided")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Supported for {kind} tensors only; RuntimeError for others."
    publish(refuse, f"Tensor.{name}")


def sparse_dim(self: Tensor) -> int:
    """The number of sparse dimensions: none."""
    return 0


def dense_dim(self: Tensor) -> int:
    """The number of dense dimensions: all."""
    return self.ndim


for _name in _CONVERSIONS:
    _conversion(_name)
for _name in _COO_ONLY:
    _refused(_name, "sparse coordinate")
for _name in _COMPRESSED_ONLY:
    _refused(_name, "sparse compressed")
_refused("values", "sparse")
_refused("_nnz", "sparse")
publish(sparse_dim, "Tensor.sparse_dim")
publish(dense_dim, "Tensor.dense_dim")
