"""Formulas of sizes: polynomials with integer coefficients in sizes that calls may change, and rounded quotients.

Two formulas that are equal as polynomials are one value, so sizes can be compared without their values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

MOST_FACTORS = 4
"""Factors of a term; products of more sizes than that no program needs, and they would overflow."""

Atom: TypeAlias = "int | Quotient"
Term: TypeAlias = tuple[Atom, ...]
Box: TypeAlias = Sequence[tuple[int, int]]
"""The least and the largest value of each size."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """``of // by``, where nothing is known of the remainder."""

    of: Form
    by: int


@dataclass(frozen=True, slots=True)
class Form:
    """The sum of ``terms``: products of sizes (their numbers) and quotients, each with its coefficient."""

    terms: tuple[tuple[Term, int], ...]

    @staticmethod
    def of_size(number: int) -> Form:
        """One size."""
        return Form((((number,), 1),))

    @staticmethod
    def constant(value: int) -> Form:
        """A plain number."""
        return Form((((), value),) if value else ())

    @property
    def is_constant(self) -> bool:
        """Whether no size has a part in it."""
        return not any(term for term, _ in self.terms)

    def at(self, sizes: Sequence[int]) -> int:
        """The value for ``sizes``."""
        return self._value(lambda atom: sizes[atom] if isinstance(atom, int) else atom.of.at(sizes) // atom.by)

    def evaluate(self, value: Callable[[int], object]) -> object:
        """The value in another arithmetic, in which ``value`` gives the sizes."""
        return self._value(
            lambda atom: value(atom) if isinstance(atom, int) else atom.of.evaluate(value) // atom.by  # type: ignore
        )

    def _value(self, value: Callable[[Atom], int]) -> int:
        total = 0
        for term, factor in self.terms:
            part = factor
            for atom in term:
                part = value(atom) * part
            total = part + total
        return total

    def bounds(self, box: Box) -> tuple[int, int]:
        """Bounds of the value for sizes in ``box``."""
        low = high = 0
        for term, factor in self.terms:
            ends = [factor]
            for atom in term:
                ends = [a * b for a, b in product(ends, _atom_bounds(atom, box))]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def sizes(self) -> frozenset[int]:
        """The sizes that have a part in it."""
        found: set[int] = set()
        for term, _ in self.terms:
            for atom in term:
                found |= {atom} if isinstance(atom, int) else atom.of.sizes()
        return frozenset(found)

    def line(self) -> tuple[int, int, int] | None:
        """``(size, factor, offset)`` of ``factor * size + offset``; None of other formulas."""
        parts = dict(self.terms)
        offset = parts.pop((), 0)
        if len(parts) != 1:
            return None
        ((term, factor),) = parts.items()
        return (term[0], factor, offset) if len(term) == 1 and isinstance(term[0], int) else None

    def plus(self, other: Form, factor: int = 1) -> Form:
        """``self + factor * other``."""
        return _form([*self.terms, *((term, factor * n) for term, n in other.terms)])

    def times(self, other: Form) -> Form | None:
        """The product; None where it would have too many factors."""
        terms = [(_term(a + b), m * n) for a, m in self.terms for b, n in other.terms]
        return None if any(len(term) > MOST_FACTORS for term, _ in terms) else _form(terms)

    def over(self, divisor: int) -> Form:
        """``self // divisor``, for a positive divisor."""
        whole = [(term, n // divisor) for term, n in self.terms if not term or n % divisor == 0]
        rest = [(term, n if term else n % divisor) for term, n in self.terms if n % divisor]
        if all(not term for term, _ in rest):  # a constant below the divisor
            return _form(whole)
        return _form([*whole, ((Quotient(_form(rest), divisor),), 1)])

    def exactly_over(self, other: Form) -> Form | None:
        """``self / other`` where ``other`` divides it, by long division of polynomials; None otherwise."""
        if not other.terms:
            return None
        lead, factor = max(other.terms, key=_degree)
        rest = self
        found: list[tuple[Term, int]] = []
        while rest.terms and len(found) <= len(self.terms):
            term, n = max(rest.terms, key=_degree)
            left = Counter(term)
            left.subtract(Counter(lead))
            if n % factor or min(left.values(), default=0) < 0:
                return None
            part = Form(((_term(left.elements()), n // factor),))
            taken = part.times(other)
            if taken is None:
                return None
            rest = rest.plus(taken, -1)
            found += part.terms
        return None if rest.terms else _form(found)


def _degree(term: tuple[Term, int]) -> tuple[int, str]:
    return len(term[0]), repr(term[0])


def _atom_bounds(atom: Atom, box: Box) -> tuple[int, int]:
    if isinstance(atom, int):
        return box[atom]
    low, high = atom.of.bounds(box)
    return low // atom.by, high // atom.by


def _term(atoms: Iterable[Atom]) -> Term:
    return tuple(sorted(atoms, key=repr))


def _form(terms: Iterable[tuple[Term, int]]) -> Form:
    found: dict[Term, int] = {}
    for term, n in terms:
        found[term] = found.get(term, 0) + n
    return Form(tuple(sorted(((t, n) for t, n in found.items() if n), key=repr)))
