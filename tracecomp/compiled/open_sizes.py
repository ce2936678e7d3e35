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
    """The name of each dynamic size by argument and dimension, and the range of each name."""

    names: dict[tuple[int, int], str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)

    def add(self, argument: int, axis: int, name: str, low: Any = None, high: Any = None) -> None:
        """Leave a size open under this name."""
        self.names[argument, axis] = name
        self.limit(name, low, high)

    def limit(self, name: str, low: Any, high: Any) -> None:
        """Narrow the range of a size."""
        before = self.ranges.get(name, (None, None))
        lows = [int(n) for n in (before[0], low) if n is not None]
        # PyTorch's Dim says by a huge or infinite number that it has no limit.
        highs = [int(n) for n in (before[1], high) if n is not None and n < 2**31]
        self.ranges[name] = (max(lows, default=None), min(highs, default=None))

    def of(self, args: Sequence[Any]) -> dict[str, int]:
        """The dynamic sizes of these arguments."""
        return {name: args[k].shape[axis] for (k, axis), name in self.names.items()}

    def elements(self, args: Sequence[Any], sizes: Mapping[str, int]) -> int:
        """How many elements the arguments with dynamic sizes have, with ``sizes``."""
        shapes = {k: [*args[k].shape] for k, _ in self.names}
        for (k, axis), name in self.names.items():
            shapes[k][axis] = sizes[name]
        return sum(map(prod, shapes.values()))

    def resized(self, args: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """``args`` with other sizes, their elements again and again."""
        found = [*args]
        for (k, axis), name in self.names.items():
            n = found[k].shape[axis]
            if n != sizes[name]:
                found[k] = T.index_select(found[k], axis, T.arange(sizes[name]) % max(n, 1))
        return tuple(found)


def asked_for(caller: str, args: Sequence[Any], names: Sequence[str], axes: Any, shapes: Any) -> OpenSizes:
    """Return the sizes that ``dynamic_axes`` and ``dynamic_shapes`` leave open.

    Both are by name or in the order of the arguments. A size is a ``Dim`` or its name. Names in ``axes``
    that no argument has are ignored: they may be names of outputs. The caller checks them.

    Raises ValueError, in the name of ``caller``, for entries that leave nothing open or contradict the arguments.
    """
    asked: dict[int, tuple[str, Any]] = {}
    for option, told in (("dynamic_axes", axes), ("dynamic_shapes", shapes)):
        for name, sizes in _by_name(caller, option, names, told).items():
            if name in names and sizes:
                asked[names.index(name)] = option, sizes
            elif name not in names and option == "dynamic_shapes":
                raise ValueError(f"{caller}: dynamic_shapes has {name!r}; the inputs are {', '.join(names)}")
    found = OpenSizes()
    for k, (option, sizes) in asked.items():
        if not isinstance(args[k], Tensor):
            raise ValueError(f"{caller}: input {names[k]!r} is not a tensor; only tensors have dynamic sizes")
        for axis, name, low, high in _of_input(caller, option, names[k], args[k].shape, sizes):
            if found.names.setdefault((k, axis), name) != name:
                raise ValueError(
                    f"{caller}: {option} has two names for dimension {axis} of input {names[k]!r}: "
                    f"{found.names[k, axis]!r} and {name!r}"
                )
            found.add(k, axis, name, low, high)
    _check_alike(caller, args, found)
    return found


def _by_name(caller: str, option: str, names: Sequence[str], told: Any) -> Mapping[str, Any]:
    """An option of dynamic sizes by the names of the arguments."""
    if told is None or isinstance(told, Mapping):
        return told or {}
    if not isinstance(told, tuple | list):
        raise ValueError(f"{caller}: {option} must be a dict, tuple or list, got {type(told).__name__}")
    if len(told) != len(names):
        raise ValueError(
            f"{caller}: {option} has {len(told)} entries for {len(names)} inputs ({', '.join(names)}). "
            "Give None for an input without dynamic sizes"
        )
    return dict(zip(names, told, strict=True))


def _of_input(
    caller: str, option: str, name: str, shape: Sequence[int], sizes: Any
) -> Iterator[tuple[int, str, Any, Any]]:
    """The dynamic axes of an argument, each with the name of its size and the ends of its range."""
    if not isinstance(sizes, Mapping | tuple | list):
        raise ValueError(
            f"{caller}: {option} of input {name!r} must be a dict or list, such as {{0: 'batch'}}, got {sizes!r}"
        )
    for axis, symbol in sizes.items() if isinstance(sizes, Mapping) else _listed(option, sizes, name):
        if type(axis) is not int:
            raise ValueError(f"{caller}: dimensions of input {name!r} must be integers, got {axis!r}")
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"{caller}: input {name!r} has no dimension {axis}")
        at = axis % len(shape)
        if isinstance(symbol, int) and symbol != shape[at]:
            raise ValueError(
                f"{caller}: {option} says that dimension {axis} of input {name!r} is {symbol}; it is {shape[at]}"
            )
        kind = getattr(symbol, "kind", None)  # of Dim.AUTO, Dim.DYNAMIC and Dim.STATIC, which have no name
        if symbol is None or isinstance(symbol, int) or kind == "static":
            continue
        told = symbol if isinstance(symbol, str) else getattr(symbol, "__name__", kind and f"{name}_{at}")
        if not told:
            raise ValueError(f"{caller}: dimension {axis} of input {name!r} must be a Dim or a name, got {symbol!r}")
        yield at, told, getattr(symbol, "min", None), getattr(symbol, "max", None)


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


def _listed(option: str, sizes: Sequence[Any], name: str) -> list[tuple[int, Any]]:
    """Dimensions as ``dynamic_axes`` lists them ([0, 2]), or one entry for each as ``dynamic_shapes`` has them."""
    if option == "dynamic_axes" and all(isinstance(x, int) for x in sizes):
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
            raise ValueError(f"{caller}: size {name!r} needs an upper bound, as in Dim({name!r}, max=64)")
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
