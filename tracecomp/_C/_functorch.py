"""Names that libraries import from ``torch._C._functorch``: transformations are recorded here, so tensors are never
wrapped."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a batch within ``vmap``: never visible here."""
    return False


is_legacy_batchedtensor = is_gradtrackingtensor = is_functorch_wrapped_tensor = is_functionaltensor = is_batchedtensor


def get_unwrapped(tensor: Tensor) -> Tensor:
    return tensor


def maybe_get_bdim(tensor: Tensor) -> int:
    """Return -1: ``tensor`` has no hidden axis."""
    return -1


maybe_get_level = maybe_get_bdim


def _add_batch_dim(tensor: Tensor, dim: int, level: int) -> Tensor:
    """Raise NotImplementedError: tensors have no hidden axes here."""
    raise NotImplementedError("torch._C._functorch._add_batch_dim: vmap records functions here; call torch.vmap")


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, dim: int) -> Tensor:
    """Raise NotImplementedError: tensors have no hidden axes here."""
    raise NotImplementedError("torch._C._functorch._remove_batch_dim: vmap records functions here; call torch.vmap")
