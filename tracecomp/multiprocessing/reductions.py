"""How tensors are pickled for other processes: as their pickles are, so nothing is to be registered."""

from __future__ import annotations


def init_reductions() -> None:
    """Nothing: ``Tensor`` says itself how it is pickled."""
