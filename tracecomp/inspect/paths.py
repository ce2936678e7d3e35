"""Calls on the other side of a program's limits: other values and sizes for which it takes another path.

The path of a call is the sequence of its operators and of the values that Python reads. It comes from an eager call, so
no guard that may be wrong has a part in it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy as np

from tracecomp.base.user_warnings import silenced
from tracecomp.compiled.eager_vs_compiled import Call, Lockstep
from tracecomp.inspect.observed import Event, Observed, observe
from tracecomp.record.capture import target_of

Array = np.ndarray[Any, Any]
Path = tuple[Any, ...]

_MOST_SIZES = 48
"""Most sizes whose path is observed."""
_MOST_PATHS = 6
"""Most other paths through the values of one argument."""
_LARGEST = 4096
"""Largest size of a changed argument."""
_AFFINE = (
    (-1.0, 0.0), (16.0, 0.0), (-16.0, 0.0), (0.0625, 0.0), (2.0**-10, 0.0), (1024.0, 0.0), (-1024.0, 0.0), (1.0, 1.0),
    (1.0, -1.0), (1.0, 64.0), (1.0, -64.0), (1.0, 1e5), (1.0, -1e5), (0.0, 1.0), (0.0, 0.0),
)  # fmt: skip
"""Factors and offsets of other values: both signs, several magnitudes. Zeros last: many paths agree on those."""


class Limits:
    """Calls of ``fn`` beyond the limits of ``call``, found once: ``values`` of arguments, and ``sizes`` of axes."""

    def __init__(self, fn: Callable[..., object], call: Call) -> None:
        self._fn = fn
        self._call = call
        self._usual = self._observed(call)
        self._values: dict[int, list[Array]] = {}
        self._sizes: dict[tuple[int, int], list[int]] = {}

    def values(self, leaf: int, array: Array, make: Callable[[Array, Call], Call]) -> list[Array]:
        """Other contents of argument ``leaf`` for which the call takes other paths; ``make`` builds the call."""
        if leaf not in self._values:
            self._values[leaf] = []
            if reads_values(self._usual) and array.dtype.kind in "fiu" and array.size:
                self._values[leaf] = with_other_paths(
                    others_of(array), lambda other: self._path(make(other, self._call)), self._path(self._call)
                )
        return self._values[leaf]

    def sizes(self, size: int, axis: int, beside: int, make: Callable[[int, Call], Call]) -> list[int]:
        """Other sizes of an axis at which the path changes; ``beside``: elements of one row of it."""
        if (size, axis) not in self._sizes:
            tried = sizes_to_observe(self._fn, size, beside)
            self._sizes[size, axis] = limits(tried, lambda n: self._path(make(n, self._call)))
        return self._sizes[size, axis]

    def _path(self, call: Call) -> Path:
        observed = self._observed(call)
        return (*path_of(observed), observed.raised)

    def _observed(self, call: Call) -> Observed:
        with contextlib.redirect_stdout(io.StringIO()), silenced():
            return observe(self._fn, call, Lockstep(self._fn, self._fn).roots(call))


def path_of(observed: Observed) -> Path:
    """The operators and lines of a call, and the values that Python read; shapes have no part in it."""
    return tuple((e.kind, _without_shapes(e), e.source) for e in observed.events)


def _without_shapes(event: Event) -> object:
    return event.what[0] if event.kind == "node" else event.what if event.kind == "value" else None


def reads_values(observed: Observed) -> bool:
    """Whether the path may depend on values of tensors."""
    return any(e.kind == "value" for e in observed.events)


def others_of(array: Array) -> Iterator[Array]:
    """Arrays of other values, of its type."""
    for factor, offset in _AFFINE:
        with np.errstate(all="ignore"):
            yield np.asarray(array.astype(np.float64) * factor + offset).astype(array.dtype)


def with_other_paths(arrays: Iterator[Array], path: Callable[[Array], Path], usual: Path) -> list[Array]:
    """Those of ``arrays`` whose path is a new one."""
    seen, found = {usual}, []
    for array in arrays:
        own = path(array)
        if own not in seen:
            seen.add(own)
            found.append(array)
        if len(found) == _MOST_PATHS:
            break
    return found


def limits(sizes: Sequence[int], path: Callable[[int], Path]) -> list[int]:
    """The sizes on both sides of each change of path between two neighbours of ``sizes``, by bisection."""
    known: dict[int, Path] = {}

    def at(size: int) -> Path:
        if size not in known:
            known[size] = path(size)
        return known[size]

    found: set[int] = set()
    ordered = sorted(set(sizes))
    for low, high in pairwise(ordered):
        if at(low) == at(high):
            continue
        while high - low > 1 and len(known) < _MOST_SIZES:
            middle = (low + high) // 2
            low, high = (middle, high) if at(middle) == at(low) else (low, middle)
        found |= {low, high}
    return sorted(found)


def sizes_to_observe(fn: object, size: int, beside: int) -> list[int]:
    """Sizes between which a path may change: the numbers in the program's code and their neighbours, also as products.

    ``beside``: the number of elements of one row.
    """
    found = {1, 2, size - 1, size, size + 1, 2 * size, 4 * size}
    for number in _numbers(fn):
        for whole in (number, number // max(beside, 1), -(-number // max(beside, 1))):
            found |= {whole - 1, whole, whole + 1}
    return sorted(n for n in found if 1 <= n <= _LARGEST)[: _MOST_SIZES // 2]


def _numbers(fn: object) -> set[int]:
    """The integers in the code of ``fn``, or of a module's ``forward``, and of functions defined there."""
    target = target_of(fn)
    stack: list[CodeType] = [] if target is None else [target[0].__code__]
    found: set[int] = set()
    while stack:
        for constant in stack.pop().co_consts:
            if isinstance(constant, CodeType):
                stack.append(constant)
            elif type(constant) is int and 1 < constant <= _LARGEST**2:
                found.add(constant)
    return found
