"""Dynamic sizes of an exported program: their ranges, conditions from the run, the check of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, NamedTuple

from tracecomp._dynamo.exc import UserError, UserErrorType
from tracecomp.export.dynamic_shapes import Constraint, Dim, _DimHint
from tracecomp.functional import names as T
from tracecomp.record.size_forms import Form
from tracecomp.record.size_range import Conditions, SizeRange


class Place(NamedTuple):
    """An axis whose size is ``factor * size + offset``."""

    leaf: int
    axis: int
    factor: int
    offset: int


class ValueRanges(NamedTuple):
    """The values of a size, ends included; ``inf`` where there is no end."""

    lower: float
    upper: float

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper == inf else self.upper}]"


Again = Callable[[Sequence[int]], "Conditions | None"]
_LARGE = 2**31
"""Bound above which limits of sizes are ignored: some operators count their elements."""


@dataclass
class Size:
    """An independent size: ``name`` is that of its ``Dim``, if it has one, and ``value`` that of the example."""

    symbol: str
    name: str | None
    kind: str
    value: int
    low: int = 0
    high: int | None = None
    without: list[int] = field(default_factory=list)
    fixed: bool = False
    places: list[Place] = field(default_factory=list)

    def text(self) -> str:
        return self.name or self.symbol


@dataclass
class OpenSizes:
    """The dynamic sizes in order, and formulas of them that are 0, are not 0, or are not negative."""

    sizes: list[Size] = field(default_factory=list)
    zero: list[Form] = field(default_factory=list)
    other: list[Form] = field(default_factory=list)
    positive: list[Form] = field(default_factory=list)
    asked: list[Constraint] = field(default_factory=list)

    def add(self, leaf: int, axis: int, dim: Dim | _DimHint, n: int, where: str) -> Place | None:
        """Leave the size ``n`` of an axis open; None where it stays as it is. UserError for a wrong range."""
        if isinstance(dim, Dim):
            name, kind, root = dim.root.__name__, "named", dim.root
            factor, offset, low, high = dim.factor, dim.offset, root.min, root.max
        else:
            name, kind, factor, offset, low, high = None, dim.kind, 1, 0, dim.min or 0, dim.max
        value = (n - offset) // factor
        told = name or where
        if n < 2 and kind == "auto":
            return None
        if n < 2:
            raise _fixed(told, n, "")
        known = next((s for s in self.sizes if s.name == name), None) if name else None
        if known is None:
            known = Size(f"s{len(self.sizes)}", name, kind, value, low, high)
            self.sizes.append(known)
        if factor * known.value + offset != n:
            raise _violated(
                told, f"{where} is {n}, but must be {factor * known.value + offset} since {told} is {known.value}"
            )
        if value < low or (high is not None and value > high):
            raise _violated(told, f"{where} is {n}, which is not in the range of {told}, {low} to {high}")
        place = Place(leaf, axis, factor, offset)
        known.places.append(place)
        self.asked.append(Constraint(leaf, axis, dim))
        return place

    def number(self, place: Place) -> int:
        """Which size that of an axis follows from."""
        return next(k for k, s in enumerate(self.sizes) if place in s.places)

    # ---- what the run has shown

    def resized(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """``leaves`` with other sizes, their elements again and again."""
        found = [*leaves]
        for size, value in zip(self.sizes, values, strict=True):
            for p in size.places:
                t, n = found[p.leaf], p.factor * value + p.offset
                if t.shape[p.axis] != n:
                    found[p.leaf] = T.index_select(t, p.axis, T.arange(n) % t.shape[p.axis])
        return found

    def learn(self, conditions: Conditions, where: Sequence[str], again: Again) -> None:
        """Apply the conditions on the sizes. UserError if they exclude a requested dynamic size.

        ``again(values)`` returns the conditions of a run at other sizes, if it is the same program: shapes are compared
        in many places, and most comparisons do not affect the graph.
        """
        conditions = self._opened(conditions, again)
        for k, (size, held) in enumerate(zip(self.sizes, conditions.ranges, strict=True)):
            if not held.fixed:
                _close_holes(size, held, partial(self._is_same, again, k))
                _extend_ends(size, held, partial(self._is_same, again, k))
            told = size.name or _axis(where, size.places[0])
            if held.fixed:
                if size.kind != "auto":
                    raise _fixed(told, size.value, f", at {held.fixed_at}" if held.fixed_at else "")
                size.fixed = True
                continue
            self._narrow(size, held, told)
        self.zero = _sorted(conditions.zero)
        self.other = [f for f in _sorted(conditions.other) if not self._same_at_root(f, again)]
        self.positive = _sorted(conditions.positive)
        for form in self.zero:
            if all(self.sizes[k].kind == "named" for k in form.sizes()):
                names = " and ".join(sorted(self.sizes[k].text() for k in form.sizes()))
                raise _violated(names, f"the program needs {self.formula(form, [s.text() for s in self.sizes])} == 0")

    def _is_same(self, again: Again, size: int, value: int) -> bool:
        """Whether the program is the same with another value of one size."""
        return again(self._values({size: value})) is not None

    def _values(self, changed: Mapping[int, int]) -> list[int]:
        """The sizes of the example, some of them changed."""
        return [changed.get(k, s.value) for k, s in enumerate(self.sizes)]

    def _opened(self, conditions: Conditions, again: Again) -> Conditions:
        """The conditions, or those of a run at other sizes that are not, by chance, those of something else."""
        for k, size in enumerate(self.sizes):
            if conditions.ranges[k].fixed:
                for n in (size.value + 1, 2 * size.value + 1):
                    other = again(self._values({k: n})) if n <= (size.high or _LARGE) else None
                    if other is not None and not other.ranges[k].fixed:
                        conditions = other
                        break
        return conditions

    def elsewhere(self, again: Again) -> Conditions | None:
        """The conditions of a run at other sizes; None where no such run writes the same graph.

        For an example that has two sizes, or a size and a number of the program, equal by chance: its recording does
        not tell which of them a shape follows.
        """
        for step in (1, 2, 3):
            values = [s.value + step * (k + 1) for k, s in enumerate(self.sizes)]
            if all(s.high is None or n <= s.high for s, n in zip(self.sizes, values, strict=True)):
                conditions = again(values)
                if conditions is not None:
                    return conditions
        return None

    def _same_at_root(self, form: Form, again: Again) -> bool:
        """Whether the program is the same where ``form`` is 0, though it has asked whether it is."""
        for k in form.sizes():
            start, slope = form.at(self._values({k: 0})), form.at(self._values({k: 1})) - form.at(self._values({k: 0}))
            if slope and start % slope == 0 and -start // slope >= 2:
                return again(self._values({k: -start // slope})) is not None
        return False

    def _narrow(self, size: Size, held: SizeRange, told: str) -> None:
        # As in PyTorch, a dynamic size is at least 2 for the program; the call handles smaller ones.
        shrunk = held.low > max(size.low, 2) or (held.high is not None and (size.high is None or held.high < size.high))
        holes = sorted(n for n in held.without if n >= max(size.low, 2) and (size.high is None or n <= size.high))
        if (shrunk or holes) and size.kind == "named":
            raise _violated(told, f"not all values of {told} satisfy the program's condition {held.says()}")
        size.low = max(size.low, held.low)
        size.high = size.high if held.high is None else held.high if size.high is None else min(held.high, size.high)
        size.without = sorted(n for n in held.without if n >= size.low)

    # ---- texts

    def formula(self, form: Form, names: Sequence[str] | None = None) -> str:
        """A formula as text."""
        parts = []
        for term, factor in form.terms:
            atoms = [
                (names[a] if names else self.sizes[a].symbol) if isinstance(a, int)
                else f"(({self.formula(a.of, names)}) // {a.by})"
                for a in term
            ]  # fmt: skip
            parts.append("*".join([*([] if factor == 1 and atoms else [str(factor)]), *atoms]))
        return " + ".join(reversed(parts)) or "0"

    def ranges(self) -> dict[str, ValueRanges]:
        """The range of each size, and of those that follow from them, by symbol."""
        found: dict[str, ValueRanges] = {}
        for k, size in enumerate(self.sizes):
            for p in size.places:
                text = self.formula(Form((((k,), p.factor),)).plus(Form.constant(p.offset)))
                high = inf if size.high is None else p.factor * size.high + p.offset
                if not size.fixed:
                    found[text] = ValueRanges(p.factor * size.low + p.offset, high)
        return found

    # ---- a call

    def check(
        self, shapes: Sequence[Sequence[int] | None], wanted: Sequence[Sequence[object] | None], where: Sequence[str]
    ) -> None:
        """AssertionError unless the arguments' ``shapes`` are as ``wanted``: numbers, or None for dynamic sizes."""
        for shape, known, name in zip(shapes, wanted, where, strict=True):
            if shape is None or known is None:
                continue
            if len(shape) != len(known):
                raise AssertionError(f"Guard failed: {name}.dim() == {len(known)}")
            for axis, (n, m) in enumerate(zip(shape, known, strict=True)):
                if m is not None and n != m:
                    raise AssertionError(f"Guard failed: {name}.size()[{axis}] == {m}")
        values = [self._value(size, shapes, where) for size in self.sizes]
        names = [_axis(where, s.places[0]) for s in self.sizes]
        self._check_forms(self.zero, "== 0", values, names)
        self._check_forms(self.other, "!= 0", values, names)
        self._check_forms(self.positive, ">= 0", values, names)

    def _check_forms(self, forms: Sequence[Form], text: str, values: Sequence[int], names: Sequence[str]) -> None:
        for form in forms:
            n = form.at(values)
            if not {"== 0": n == 0, "!= 0": n != 0, ">= 0": n >= 0}[text]:
                raise AssertionError(f"Guard failed: {self.formula(form, names)} {text}")

    def _value(self, size: Size, shapes: Sequence[Sequence[int] | None], where: Sequence[str]) -> int:
        """The size in this call."""
        found: int | None = None
        for p in size.places:
            shape = shapes[p.leaf]
            assert shape is not None
            n, text = shape[p.axis], _axis(where, p)
            if (n - p.offset) % p.factor:
                raise AssertionError(f"Guard failed: ({text} - {p.offset}) % {p.factor} == 0")
            value = (n - p.offset) // p.factor
            if found is not None and value != found:
                raise AssertionError(
                    f"Guard failed: {text} == {p.factor * found + p.offset}, as in {_axis(where, size.places[0])}"
                )
            found = value
        assert found is not None
        self._in_range(size, found, _axis(where, size.places[0]))
        return found

    def _in_range(self, size: Size, value: int, text: str) -> None:
        p = size.places[0]
        if size.fixed and value != size.value:
            raise AssertionError(f"Guard failed: {text} == {p.factor * size.value + p.offset}")
        if value < size.low:
            raise AssertionError(f"Guard failed: {text} >= {p.factor * size.low + p.offset}")
        if size.high is not None and value > size.high:
            raise AssertionError(f"Guard failed: {text} <= {p.factor * size.high + p.offset}")
        if value in size.without:
            raise AssertionError(f"Guard failed: {text} != {p.factor * value + p.offset}")


def _close_holes(size: Size, held: SizeRange, same: Callable[[int], bool]) -> None:
    """Let ``held`` hold for values that it leaves out, but for which the program is the same."""
    if held.high is not None and held.high > _LARGE:
        held.high = None
    if held.low == 2 and size.low < 2 and same(1):
        held.low = 1
        held.without.discard(1)
    low, high = max(size.low, held.low), min(size.high or _LARGE, held.high or _LARGE)
    held.without = {n for n in held.without if low <= n <= high and not same(n)}


def _extend_ends(size: Size, held: SizeRange, same: Callable[[int], bool]) -> None:
    """Extend ``held`` to the value next to either end, if the program is the same there.

    ``min`` and ``max`` of two sizes, as in the bounds of a slice, distinguish less from equal, although either branch
    is valid for equal sizes.
    """
    if held.high is not None and (size.high is None or held.high < size.high) and same(held.high + 1):
        held.high += 1
    if held.low > max(size.low, 2) and same(held.low - 1):
        held.low -= 1


def _axis(where: Sequence[str], place: Place) -> str:
    return f"{where[place.leaf]}.size()[{place.axis}]"


def _sorted(forms: set[Form]) -> list[Form]:
    return sorted(forms, key=repr)


def _fixed(name: str, value: int, where: str) -> UserError:
    return _violated(
        name, f"You marked {name} as dynamic but your code specialized it to be a constant ({value}){where}. Use "
        f"Dim.STATIC or Dim.AUTO if that is intended.\nSuggested fixes:\n  {name} = {value}"
    )  # fmt: skip


def _violated(name: str, why: str) -> UserError:
    return UserError(UserErrorType.CONSTRAINT_VIOLATION, f"Constraints violated ({name})!\n  - {why}")
