"""``torch.nn.attention``: the choice of an implementation of scaled dot product attention; there is one here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum


class SDPBackend(Enum):
    """PyTorch's implementations by name; all denote the single one here."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Accept a choice without effect; AssertionError if it is not a backend."""
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    assert all(isinstance(b, SDPBackend) for b in chosen), "Backend must be an instance of SDPBackend"
    yield


__all__ = ["SDPBackend", "sdpa_kernel"]
