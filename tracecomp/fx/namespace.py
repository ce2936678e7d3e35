"""Names of nodes and of objects in their code: legal, unique, and close to the requested ones."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.*)_(\d+)$")
OWN_GLOBALS = ("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree")
"""Names that generated code can use without an import."""


def snake_case(text: str) -> str:
    """``text`` in lower case with an underscore where a word begins."""
    letters = [
        f"_{c.lower()}" if c.isupper() and i and text[i - 1].islower() else c.lower() for i, c in enumerate(text)
    ]
    return "".join(letters)


class Namespace:
    """Names in use. An object that asked once gets the same name again."""

    def __init__(self) -> None:
        self._of_object: dict[int, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._kept: list[Any] = []

    def create_name(self, candidate: str, obj: object) -> str:
        """A name for ``obj`` that begins with ``candidate``."""
        if obj is not None and id(obj) in self._of_object:
            return self._of_object[id(obj)]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = _NUMBERED.match(candidate)
        base, number = (numbered[1], int(numbered[2])) if numbered else (candidate, 0)
        candidate = f"{base}_{number}" if numbered else base
        number = number or self._counts.get(base, 0)
        while candidate in self._used or self._is_taken(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._counts[base] = number
        if obj is not None:
            self.associate(candidate, obj)
        return candidate

    def associate(self, name: str, obj: object) -> None:
        """Note that ``name`` is that of ``obj``."""
        self._of_object[id(obj)] = name
        self._used.add(name)
        self._kept.append(obj)  # so that no other object gets its id

    @staticmethod
    def _is_taken(name: str, obj: object) -> bool:
        if keyword.iskeyword(name):
            return True
        if name in vars(builtins):
            return obj is not vars(builtins)[name]
        return name in OWN_GLOBALS and getattr(obj, "__name__", None) != name
