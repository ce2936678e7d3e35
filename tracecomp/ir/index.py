"""Integer index algebra: affine forms over loop variables, with floor division and remainder that simplify.

An ``Index`` is ``const + sum(coefficient * atom)``. Atoms are loop variables, floor divisions, remainders, and integers
computed at run time (a loaded gather index). The explicit affine form shows strides to later stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from tracecomp.ir.immutable import immutable


class Var(NamedTuple):
    """A loop variable, running over ``range(extent)``.

    A tuple, because compilation looks up variables more often than anything else: tuples are hashed without Python
    code.
    """

    name: str
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        return (0, max(self.extent - 1, 0))


@immutable
class FloorDiv:
    """``index // divisor`` where it did not simplify."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int] | None:
        b = self.index.bounds
        return b and (b[0] // self.divisor, b[1] // self.divisor)


@immutable
class Mod:
    """``index % divisor`` where it did not simplify; never negative."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        return (0, self.divisor - 1)


@immutable
class Computed:
    """An integer known at run time: a scalar expression of the loop IR, with bounds when they are known."""

    expr: Any
    bounds: tuple[int, int] | None = None


Atom = Var | FloorDiv | Mod | Computed


class Index:
    """``const + sum(coefficient * atom)``, immutable; build with ``index``, ``+``, ``*``, ``//`` and ``%``.

    Terms are sorted, so equal sums compare equal. A plain class, not a dataclass: compilation creates many.
    """

    __slots__ = ("_hash", "_vars", "const", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...] = (), const: int = 0) -> None:
        self.terms = terms
        self.const = const

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash((self.const, self.terms))
            return self._hash

    def __repr__(self) -> str:
        return f"Index({self})"

    @property
    def bounds(self) -> tuple[int, int] | None:
        low = high = self.const
        for atom, c in self.terms:
            b = atom.bounds
            if b is None:
                return None
            low += min(c * b[0], c * b[1])
            high += max(c * b[0], c * b[1])
        return (low, high)

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def is_computed(self) -> bool:
        """Whether an integer computed at run time occurs in it."""
        for atom, _ in self.terms:
            if isinstance(atom, Computed) or (not isinstance(atom, Var) and atom.index.is_computed):
                return True
        return False

    def coefficient(self, var: Var) -> int | None:
        """The stride in ``var``; None when ``var`` also occurs inside another atom (not affine in it)."""
        total = 0
        for atom, c in self.terms:
            if atom == var:
                total += c
            elif depends(atom, var):
                return None
        return total

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        const = self.const + other.const
        if not other.terms or not self.terms:
            return Index(self.terms or other.terms, const)
        merged = dict(self.terms)
        for atom, c in other.terms:
            merged[atom] = merged.get(atom, 0) + c
        return _simplified(merged, const)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        b = rest.bounds
        if b is not None and b[0] >= 0 and b[1] < divisor:
            return whole
        if rest.is_const:
            return whole + rest.const // divisor
        if len(rest.terms) == 1 and isinstance(inner := rest.terms[0][0], FloorDiv) and rest.terms[0][1] == 1:
            # x // a // b == x // (a * b), for negative numbers, too
            return whole + (inner.index + rest.const * inner.divisor) // (inner.divisor * divisor)
        return whole + Index(((FloorDiv(rest, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index()
        _, rest = self._split(divisor)
        b = rest.bounds
        if b is not None and b[0] >= 0 and b[1] < divisor:
            return rest
        if rest.is_const:
            return Index((), rest.const % divisor)
        return Index(((Mod(rest, divisor), 1),))

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """Return ``(q, r)`` with ``self == q * divisor + r``, where no coefficient of ``r`` is a multiple of
        ``divisor``."""
        whole = Index((), self.const // divisor)
        rest = Index((), self.const % divisor)
        for atom, c in self.terms:
            if c % divisor == 0:
                whole += Index(((atom, c // divisor),))
            else:
                rest += Index(((atom, c),))
        return whole, rest

    def substitute(self, mapping: Mapping[Var, Index]) -> Index:
        """This index with loop variables replaced, simplified again."""
        if self.vars().isdisjoint(mapping):
            return self
        return total(self.const, ((_substitute_atom(atom, mapping), c) for atom, c in self.terms))

    def vars(self) -> frozenset[Var]:
        """Loop variables it depends on, those inside divisions and run-time integers included."""
        try:
            return self._vars
        except AttributeError:
            found: set[Var] = set()
            for atom, _ in self.terms:
                if type(atom) is Var:
                    found.add(atom)
                else:
                    found |= _atom_vars(atom)
            self._vars: frozenset[Var] = frozenset(found)
            return self._vars

    def __str__(self) -> str:
        parts = [a_str if c == 1 else f"{c}*{a_str}" for a, c in self.terms for a_str in [_atom_str(a)]]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def total(const: int, parts: Iterable[tuple[Index, int]]) -> Index:
    """``const`` and the sum of indices, each times a number."""
    merged: dict[Atom, int] = {}
    for part, factor in parts:
        const += part.const * factor
        for atom, c in part.terms:
            merged[atom] = merged.get(atom, 0) + c * factor
    return _simplified(merged, const)


def _simplified(merged: dict[Atom, int], const: int) -> Index:
    terms = {a: c for a, c in merged.items() if c}
    return _rejoin(terms, const) if any(type(a) is Mod for a in terms) else _make(terms, const)


def _make(terms: dict[Atom, int], const: int) -> Index:
    """Create an Index with sorted terms, so that equal sums are equal objects."""
    if len(terms) > 1:
        differ = len({abs(c) for c in terms.values()}) == len(terms)
        return Index(tuple(sorted(terms.items(), key=_stride if differ else _place)), const)
    return Index(tuple(terms.items()), const)


def _stride(term: tuple[Atom, int]) -> int:
    return -abs(term[1])


def _place(term: tuple[Atom, int]) -> tuple[int, str]:
    """Sort key of a term: larger strides first, then by name."""
    atom, c = term
    return (-abs(c), atom.name if type(atom) is Var else _atom_str(atom))


def _rejoin(terms: dict[Atom, int], const: int) -> Index:
    """``c * d * (i // d) + c * (i % d)`` is ``c * i``."""
    for atom, c in terms.items():
        if isinstance(atom, Mod):
            whole = atom.index // atom.divisor
            if len(whole.terms) == 1 and whole.const == 0 and whole.terms[0][1] == 1:
                quotient = whole.terms[0][0]
                if terms.get(quotient) == c * atom.divisor:
                    rest = {a: k for a, k in terms.items() if a not in (atom, quotient)}
                    return _make(rest, const) + atom.index * c
    return _make(terms, const)


def index(value: int | Var | Index) -> Index:
    """``value`` as an Index."""
    if isinstance(value, Index):
        return value
    return Index(((value, 1),)) if isinstance(value, Var) else Index((), value)


def computed(expr: object, bounds: tuple[int, int] | None = None) -> Index:
    """The Index of an integer expression evaluated at run time."""
    return Index(((Computed(expr, bounds), 1),))


def depends(atom: Atom, var: Var) -> bool:
    """Whether the atom's value changes with ``var``."""
    return var in _atom_vars(atom)


def linear(position: Iterable[Index | int], shape: Iterable[int]) -> Index:
    """The row-major offset of ``position`` in an array of ``shape``."""
    parts: list[tuple[Index, int]] = []
    stride = 1
    for i, size in zip(reversed([*position]), reversed([*shape]), strict=True):
        parts.append((index(i), stride))
        stride *= size
    return total(0, reversed(parts))


def unravel(offset: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The position, in an array of ``shape``, of a row-major offset."""
    position: list[Index] = []
    for axis, size in reversed(list(enumerate(shape))):
        if axis == 0:
            position.append(offset)
        elif size <= 1:
            position.append(Index())
        else:
            position.append(offset % size)
            offset = offset // size
    return tuple(reversed(position))


def _substitute_atom(atom: Atom, mapping: Mapping[Var, Index]) -> Index:
    if isinstance(atom, Var):
        return mapping.get(atom, index(atom))
    if isinstance(atom, FloorDiv):
        return atom.index.substitute(mapping) // atom.divisor
    if isinstance(atom, Mod):
        return atom.index.substitute(mapping) % atom.divisor
    return computed(atom.expr.substitute(mapping), atom.bounds)


def _atom_vars(atom: Atom) -> Set[Var]:
    if isinstance(atom, Var):
        return {atom}
    if isinstance(atom, Computed):
        return set(atom.expr.vars())
    return atom.index.vars()


def _atom_str(atom: Atom) -> str:
    if isinstance(atom, Var):
        return atom.name
    if isinstance(atom, FloorDiv):
        return f"({atom.index} // {atom.divisor})"
    if isinstance(atom, Mod):
        return f"({atom.index} % {atom.divisor})"
    return f"[{atom.expr}]"
