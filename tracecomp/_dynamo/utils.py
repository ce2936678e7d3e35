"""The public part of ``torch._dynamo.utils``: counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

from tracecomp import compiled
from tracecomp._dynamo.counting import counted, everything


def is_compile_supported(device_type: str) -> bool:
    """Whether programs on a device can be compiled."""
    return device_type == "cpu"


class _Counters(Mapping[str, Counter[str]]):
    """Counts of all existing compiled functions since ``clear()``; unknown names are empty."""

    def __init__(self) -> None:
        # By function: counts of a deleted function must not be subtracted from others.
        self._before: WeakKeyDictionary[compiled.Compiled, dict[str, Counter[str]]] = WeakKeyDictionary()

    def __getitem__(self, name: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for each in everything():
            found += counted([each]).get(name, Counter()) - self._before.get(each, {}).get(name, Counter())
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(counted(()))

    def __len__(self) -> int:
        return len(counted(()))

    def clear(self) -> None:
        """Reset the counts."""
        self._before = WeakKeyDictionary((each, counted([each])) for each in everything())


counters = _Counters()
