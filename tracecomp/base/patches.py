"""Functions of the package that a program replaces, such as ``torch.relu``: recordings called the old ones."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

patches: dict[str, int] = {"count": 0}
"""How many functions and classes of observed modules have been replaced or deleted."""


class Observed(ModuleType):
    """A module that counts such changes. Names that are set for the first time were not used before."""

    def __setattr__(self, name: str, value: Any) -> None:
        before = vars(self).get(name)
        super().__setattr__(name, value)
        if callable(before) and before is not value:
            patches["count"] += 1

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        patches["count"] += 1


def observe(*names: str) -> None:
    """Count replaced functions in modules that are loaded."""
    for name in names:
        sys.modules[name].__class__ = Observed
