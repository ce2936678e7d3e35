"""``torch.distributed.checkpoint.stateful``: the protocol of objects that checkpoints save through their state dict."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """An object with ``state_dict`` and ``load_state_dict``. Subclassing it is optional."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save."""

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Restore a saved state."""
