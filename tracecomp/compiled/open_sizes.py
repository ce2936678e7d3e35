"""Dynamic sizes of arguments in saved programs: requests, and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.record.symbolic.sizes import marks_of

Range = tuple[int | None, int | None]
MOST_PROBES = 4096
"""Most choices of sizes that are tested for valid recordings."""


@dataclass
class OpenSizes:
    """The name of each open size by argument and dimension, and the range of each name."""

    names: dict[tuple[int, int], str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)

    def add(self, argument: int, axis: int, symbol: object) -> None:
        """Leave a size open: ``symbol`` is a ``Dim``, which may have a range, or a name."""
        name = str(getattr(symbol, "__name__", symbol))
        self.names[argument, axis] = name
        self.limit(name, getattr(symbol, "min", None), getattr(symbol, "max", None))

    def limit(self, name: str, low: Any, high: Any) -> None:
        """Narrow the range of a size."""
        before = self.ranges.get(name, (None, None))
        lows = [int(n) for n in (before[0], low) if n is not None]
        # PyTorch's Dim says by a huge or infinite number that it has no limit.
        highs = [int(n) for n in (before[1], high) if n is not None and n < 2**31]
        self.ranges[name] = (max(lows, default=None), min(highs, default=None))

    def of(self, args: Sequence[Any]) -> dict[str, int]:
        """The open sizes of these arguments."""
        return {name: args[k].shape[axis] for (k, axis), name in self.names.items()}

    def resized(self, args: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """``args`` with other sizes, their elements again and again."""
        found = [*args]
        for (k, axis), name in self.names.items():
            n = found[k].shape[axis]
            if n != sizes[name]:
                found[k] = T.index_select(found[k], axis, T.arange(sizes[name]) % max(n, 1))
        return tuple(found)


def asked_for(caller: str, args: Sequence[Any], names: Sequence[str], axes: Any, shapes: Any) -> OpenSizes:
    """The requests of ``dynamic_axes`` and ``dynamic_shapes``; ValueError, in the name of ``caller``, for invalid ones.

    Both are by name or in the order of the arguments; a size is a ``Dim``, or its name.
    """
    asked: dict[int, Any] = {}
    for told in (axes or {}, shapes or {}):
        by_name = told if isinstance(told, Mapping) else dict(zip(names, told, strict=False))
        for name, sizes in by_name.items():
            if name in names and sizes:
                asked[names.index(name)] = sizes
            # In ``dynamic_axes`` PyTorch accepts names of outputs, which have no dynamic sizes.
            elif name not in names and told is shapes:
                raise ValueError(f"{caller}: dynamic_shapes has {name!r}; the inputs are {', '.join(names)}")
    found = OpenSizes()
    for k, sizes in asked.items():
        if not isinstance(args[k], Tensor):
            raise ValueError(f"{caller}: input {names[k]!r} is not a tensor; only tensors have dynamic sizes")
        for axis, symbol in sizes.items() if isinstance(sizes, Mapping) else _listed(sizes, names[k]):
            if symbol is not None and not isinstance(symbol, int):
                rank = args[k].ndim
                if not -rank <= axis < rank:
                    raise ValueError(f"{caller}: input {names[k]!r} has no dimension {axis}")
                found.add(k, axis % rank, symbol)
    _check_alike(caller, args, found)
    return found


def argument_names(fn: Any, args: Sequence[object], names: Sequence[str] | None = None) -> list[str]:
    """The names of the arguments: ``names`` as far as they go, else those of the function's parameters."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
        found = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        found = []
    found = [*(names or found)][: len(args)]
    return found + [f"input{k}" for k in range(len(found), len(args))]


def _check_alike(caller: str, args: Sequence[Any], found: OpenSizes) -> None:
    seen: dict[str, int] = {}
    for (k, axis), name in found.names.items():
        n = args[k].shape[axis]
        if seen.setdefault(name, n) != n:
            raise ValueError(f"{caller}: size {name!r} is both {seen[name]} and {n}")


def _listed(sizes: Sequence[Any], name: str) -> list[tuple[int, Any]]:
    """Dimensions as ``dynamic_axes`` lists them ([0, 2]), or one entry for each as ``dynamic_shapes`` has them."""
    if all(isinstance(x, int) for x in sizes):
        return [(axis, f"{name}_{axis}") for axis in sizes]
    return [*enumerate(sizes)]


def add_marked(found: OpenSizes, args: Sequence[object], names: Sequence[str]) -> None:
    """Make sizes dynamic that ``mark_dynamic`` has marked, too."""
    for k, x in enumerate(args):
        if isinstance(x, Tensor) and "_size_marks" in x.__dict__:
            for axis, (low, high) in marks_of(x).follow.items():
                if (k, axis) not in found.names:
                    found.add(k, axis, f"{names[k]}_{axis}")
                found.limit(found.names[k, axis], low, high)


def bounded(caller: str, found: OpenSizes) -> dict[str, tuple[int, int]]:
    """The range of each size. ValueError for one without an end, or without any size in it."""
    ranges = {}
    for name, (low, high) in found.ranges.items():
        if high is None:
            raise ValueError(
                f"{caller}: say how large size {name!r} gets, as in Dim({name!r}, max=64): there is code for a range"
            )
        if max(low or 1, 1) > high:
            raise ValueError(f"{caller}: size {name!r} must be between {low} and {high}")
        ranges[name] = (max(low or 1, 1), high)
    return ranges


def probes(ranges: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    """Sizes to record at, or to see whether a recording serves them: first ones that differ from others, then ends."""
    tried = [_unlike(k, len(ranges), low, high) for k, (low, high) in enumerate(ranges.values())]
    for number in range(3):
        yield {name: own[min(number, len(own) - 1)] for name, own in zip(ranges, tried, strict=True)}
    every = prod(high - low + 1 for low, high in ranges.values()) <= MOST_PROBES
    each = [range(low, high + 1) if every else _ends(low, high) for low, high in ranges.values()]
    for _, chosen in zip(range(MOST_PROBES), product(*each), strict=False):
        yield dict(zip(ranges, chosen, strict=True))


def _unlike(k: int, count: int, low: int, high: int) -> list[int]:
    """Sizes that other values are unlikely to have: primes that are not the other sizes'."""
    primes = [n for n in range(max(low, 5), min(high, 400) + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]
    return primes[k::count][:3] or [*range(max(low, 2), high + 1)][k::count][:3] or [high]


def _ends(low: int, high: int) -> list[int]:
    """The ends of a range, the powers of two, and their neighbours."""
    powers = {(1 << k) + d for k in range(high.bit_length()) for d in (-1, 0, 1)}
    return sorted({low, low + 1, high} | {n for n in powers if low <= n <= high})
