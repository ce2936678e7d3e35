"""Pickling of tensors for other processes: ordinary pickling, so nothing is registered."""

from __future__ import annotations


def init_reductions() -> None:
    """Nothing: ``Tensor`` says itself how it is pickled."""
