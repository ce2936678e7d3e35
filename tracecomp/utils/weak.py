"""Dictionaries whose keys are compared by identity and do not stay alive for them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

__all__ = ["WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary", "WeakTensorRef"]


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that equals another if both refer to the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        a, b = self(), other() if isinstance(other, weakref.ref) else None
        return a is b if a is not None and b is not None else self is other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary with weak keys, compared by identity."""

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.ref_type = ref_type
        self.data: Any = {}
        self.update(dict or {})

    def _gone(self, ref: object) -> None:
        self.data.pop(ref, None)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._gone)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        return self.ref_type(key) in self.data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for ref in list(self.data) if (key := ref()) is not None])


WeakTensorRef = WeakIdRef
WeakTensorKeyDictionary = WeakIdKeyDictionary
