"""Names that libraries import from this module of PyTorch."""

from __future__ import annotations


class TransformGetItemToIndex:
    """A context in which ``x[i]`` with a tensor ``i`` indexes without reading its value: always so here."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None
