"""Access to hyper-parameters in a form that makes a recorded step read later changes of ``param_groups``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tracecomp.eager.modes import host, modes

Group = dict[str, Any]
"""Parameters and options by name; the optimizer defines the options."""


class _Derived(Mapping[str, Any]):
    """One value computed from a parameter group, as a mapping with one entry."""

    def __init__(self, name: str, group: Group, compute: Callable[[], object]) -> None:
        self._name = name
        self.group = group
        self._compute = compute

    def __getitem__(self, key: str) -> Any:
        if key != self._name:
            raise KeyError(key)
        return self._compute()

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1


class _Active(Mapping[str, bool]):
    """Which options of a parameter group are active. Read in every call, so it must be cheap."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __getitem__(self, key: str) -> bool:
        value = self.group[key]
        return value is not None and value is not False and bool(value != 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __len__(self) -> int:
        return len(self.group)


def number(group: Group, key: str) -> Any:
    """``group[key]``; in a recording a number that every call reads again."""
    if key not in group:
        raise KeyError(f"a parameter group of the optimizer has no option {key!r}")
    return group[key] if modes.recorder is None else host(group, key)


def pair(group: Group, key: str) -> tuple[Any, Any]:
    """The two numbers ``group[key]``, each read again at every call of a recording."""
    if modes.recorder is None:
        first, second = group[key]
        return first, second
    first = host(_Derived(f"{key}_0", group, lambda: group[key][0]), f"{key}_0")
    return first, host(_Derived(f"{key}_1", group, lambda: group[key][1]), f"{key}_1")


def active(group: Group, key: str) -> bool:
    """Whether ``group[key]`` is neither 0 nor off; a recording is valid only while that does not change."""
    options = _Active(group)
    found = options[key]
    if modes.recorder is not None:
        number_in_use = found and not isinstance(group[key], bool)
        modes.recorder.python.watch(options if number_in_use else group, key)
    return found
