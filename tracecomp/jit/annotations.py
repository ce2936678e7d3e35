"""Types of ``torch.jit.annotations`` for annotations of scripted functions: numbers or lists of a fixed length."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple  # noqa: UP035 - programs import the former names from here

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Tuple"]


class BroadcastingListCls:
    """``BroadcastingList2[int]`` annotates two numbers, or one number for both."""

    def __getitem__(self, types: object) -> None:
        """Return None: the annotation has no effect."""


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
