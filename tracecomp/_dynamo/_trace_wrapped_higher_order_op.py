"""What libraries take from this module of PyTorch."""

from __future__ import annotations


class TransformGetItemToIndex:
    """Inside, ``x[i]`` with a tensor ``i`` is an indexing operation and not a read of its value: here it always is."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None
