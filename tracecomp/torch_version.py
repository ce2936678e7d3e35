"""The version of PyTorch that tracecomp is compatible with, as a string that compares like a version."""

from __future__ import annotations

import re
from typing import Any

from tracecomp.version import __version__ as _version

__all__ = ["TorchVersion"]


def _key(version: object) -> tuple[Any, ...]:
    """Numbers of the release, then whether it is final: ``2.6.0a1`` comes before ``2.6.0``; local tags do not count."""
    if isinstance(version, tuple | list):
        version = ".".join(map(str, version))
    match = re.match(r"v?(\d+(?:\.\d+)*)[._-]?(a|b|rc|dev)?[._-]?(\d*)", str(version).strip())
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = [int(n) for n in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = ("dev", "a", "b", "rc", None).index(match[2])
    return tuple(numbers), stage, int(match[3] or 0)


class TorchVersion(str):
    """A version string that compares with strings and tuples by the meaning of versions.

    >>> TorchVersion("2.13.0+tracecomp") > "2.9", TorchVersion("1.12.0") >= (1, 9)
    (True, True)
    """

    def __lt__(self, other: object) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: object) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: object) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: object) -> bool:
        return _key(self) >= _key(other)

    def __eq__(self, other: object) -> bool:
        try:
            return str(self) == other or _key(self) == _key(other)
        except ValueError:
            return False

    def __hash__(self) -> int:
        return hash(_key(self))


__version__ = TorchVersion(_version)
