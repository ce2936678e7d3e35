"""Dynamic sizes of an exported model: every number of its graph as a function of them.

The model is recorded for several sizes. The recordings differ in numbers in attributes and shapes. Each number becomes
a polynomial in the sizes, of degree one in each, with a common divisor. It is fitted on the corners of a grid and
verified on further recordings. Numbers without such a form raise, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, product
from math import lcm, prod
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.types import TensorType
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.ops.regions import inline, inputs_of

Terms = Mapping[tuple[str, ...], int]
"""Factors of products of sizes; that of the empty product is a plain number."""


class Size:
    """A number that depends on dynamic sizes: the floor of a polynomial's value by ``divisor``.

    It is deliberately not an int: a computation with the example's value would be wrong for all others.
    """

    __slots__ = ("divisor", "terms")

    def __init__(self, terms: Terms, divisor: int = 1) -> None:
        self.terms = {k: v for k, v in terms.items() if v}
        self.divisor = divisor

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number for these sizes."""
        return sum(f * prod(sizes[s] for s in symbols) for symbols, f in self.terms.items()) // self.divisor

    def __add__(self, other: object) -> Any:
        added = _terms(other)
        if self.divisor != 1 or added is None:
            raise UnsupportedError(f"arithmetic with a size of {self}")
        return plain(Size({k: self.terms.get(k, 0) + added.get(k, 0) for k in {*self.terms, *added}}))

    def __mul__(self, other: object) -> Any:
        factors = _terms(other)
        if self.divisor != 1 or factors is None:
            raise UnsupportedError(f"arithmetic with a size of {self}")
        found: dict[tuple[str, ...], int] = {}
        for (a, x), (b, y) in product(self.terms.items(), factors.items()):
            symbols = tuple(sorted((*a, *b)))
            found[symbols] = found.get(symbols, 0) + x * y
        return plain(Size(found))

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: object) -> Any:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and (self.terms, self.divisor) == (other.terms, other.divisor)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.terms.items())), self.divisor))

    def __str__(self) -> str:
        parts = [("" if f == 1 and s else str(f)) + "*" * (f != 1 and s != ()) + "*".join(s)
                 for s, f in sorted(self.terms.items(), reverse=True)]  # fmt: skip
        text = "+".join(parts) or "0"
        return text if self.divisor == 1 else f"({text})//{self.divisor}"

    __repr__ = __str__


def _terms(value: object) -> Terms | None:
    if isinstance(value, int):
        return {(): value}
    return value.terms if isinstance(value, Size) and value.divisor == 1 else None


def plain(size: Size) -> Any:
    """``size``, or the number that it is for all sizes."""
    return size if size.terms.keys() - {()} else size.terms.get((), 0) // size.divisor


class Reciprocal:
    """One divided by a number that follows from dynamic sizes."""

    def __init__(self, size: Size) -> None:
        self.size = size


def grids(example: Mapping[str, int]) -> Iterator[tuple[list[dict[str, int]], list[dict[str, int]]]]:
    """Sizes to record for: the corners of a grid, and sizes to check with. Prime ones first, then multiples.

    Sizes that occur nowhere else keep numbers apart that are equal by chance; some models take multiples only.
    """
    primes = _primes(max(3, *example.values()), 3 * len(example) + 2)
    names = [*example]
    pairs = {s: (primes[3 * k], primes[3 * k + 1]) for k, s in enumerate(names)}
    # Even and odd sizes, and each remainder by 3: corners alone do not tell n // 2 from (n - 1) // 2.
    strides = [1, *_primes(5, len(names))]
    checks = [{s: primes[3 * k + 2] + j * strides[k] for k, s in enumerate(names)} for j in (0, 1, 2)]
    yield _corners(pairs), checks
    pairs = {s: (2 * n, 3 * n) for s, n in example.items()}
    yield _corners(pairs), [{s: (4 + j + k) * n for k, (s, n) in enumerate(example.items())} for j in (0, 1)]


def _corners(pairs: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    return [dict(zip(pairs, chosen, strict=True)) for chosen in product(*pairs.values())]


def _primes(start: int, count: int) -> list[int]:
    found: list[int] = []
    n = start
    while len(found) < count:
        if all(n % d for d in range(2, int(n**0.5) + 1)):
            found.append(n)
        n += 1
    return found


class Fit:
    """Finds what numbers follow from sizes, from their values in recordings at the corners of a grid and beyond."""

    def __init__(self, corners: Sequence[Mapping[str, int]], checks: Sequence[Mapping[str, int]]) -> None:
        self.samples = [*corners, *checks]
        symbols = [*corners[0]]
        self._products = [*chain.from_iterable(combinations(symbols, n) for n in range(len(symbols) + 1))]
        rows = [[Fraction(prod(c[s] for s in p)) for p in self._products] for c in corners]
        self._inverse = _inverse(rows)

    def number(self, values: Sequence[Any], where: str) -> Any:
        """The formula of a number, from its values; UnsupportedError if there is none."""
        if all(type(v) is type(values[0]) and v == values[0] for v in values):
            return values[0]
        if all(type(v) is int for v in values):
            return self._size(values, where)
        if all(type(v) is float and v != 0 for v in values):
            if all(v == int(v) for v in values):
                return self._size([int(v) for v in values], where)
            turned = [1 / v for v in values]
            if all(abs(v - round(v)) < 1e-6 * abs(v) for v in turned):
                return Reciprocal(self._size([round(v) for v in turned], where))
        raise UnsupportedError(f"{where} depends on a dynamic size in an unsupported way")

    def _size(self, values: Sequence[int], where: str) -> Any:
        count = len(self._products)
        factors = [sum((a * v for a, v in zip(row, values, strict=False)), Fraction()) for row in self._inverse]
        divisor = lcm(*[f.denominator for f in factors])
        terms = {p: int(f * divisor) for p, f in zip(self._products, factors, strict=True)}
        # The corners show the floor of a whole-number division, or something below. The simplest that fits is chosen.
        for constant in sorted(range(terms[()], terms[()] + divisor), key=abs):
            found = Size({**terms, (): constant}, divisor)
            if [found.at(s) for s in self.samples] == [*values]:
                return plain(found)
        if (squared := self._of_a_square(values)) is not None:
            return squared
        raise UnsupportedError(
            f"{where} is {', '.join(map(str, values[:count]))} for sizes {self.samples[:count]}: not polynomial"
        )

    def _of_a_square(self, values: Sequence[int]) -> Size | None:
        """A polynomial of degree two in one size, times others: tables of pairs of places have so many rows."""
        for symbol in self.samples[0]:
            for others in [p for p in self._products if symbol not in p]:
                factors = [prod(s[o] for o in others) for s in self.samples]
                if any(v % f for v, f in zip(values, factors, strict=True)):
                    continue
                rest = {s[symbol]: v // f for s, v, f in zip(self.samples, values, factors, strict=True)}
                terms = _parabola([*rest.items()][:3])
                found = Size({tuple(sorted((*others, *power))): f for power, f in zip(
                    ((), (symbol,), (symbol, symbol)), terms, strict=True)}) if terms else None  # fmt: skip
                if found is not None and [found.at(s) for s in self.samples] == [*values]:
                    return found
        return None


def _parabola(points: Sequence[tuple[int, int]]) -> list[int] | None:
    """The whole coefficients of the polynomial of degree two through three points, the constant first."""
    if len(points) < 3:
        return None
    rows = _inverse([[Fraction(x**k) for k in range(3)] for x, _ in points])
    found = [sum((a * y for a, (_, y) in zip(row, points, strict=True)), Fraction()) for row in rows]
    return [int(f) for f in found] if all(f.denominator == 1 for f in found) else None


def _inverse(rows: Sequence[Sequence[Fraction]]) -> list[list[Fraction]]:
    """The inverse of a matrix, exactly."""
    n = len(rows)
    work = [[*row, *[Fraction(int(i == k)) for k in range(n)]] for i, row in enumerate(rows)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if work[r][i])
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [x / work[i][i] for x in work[i]]
        for r in range(n):
            if r != i and work[r][i]:
                work[r] = [a - work[r][i] * b for a, b in zip(work[r], work[i], strict=True)]
    return [row[n:] for row in work]


def generalize(graphs: Sequence[Graph], fit: Fit) -> Graph:
    """The first of ``graphs``, recorded for the samples of ``fit``, with sizes for numbers that differ among them."""
    nodes = [[*g.live_nodes()] for g in graphs]
    inputs = [g.inputs for g in graphs]
    if len({len(n) for n in nodes}) > 1 or len({len(i) for i in inputs}) > 1:
        raise UnsupportedError("the graph's structure depends on an input size")
    places: list[dict[Value, int]] = [{} for _ in graphs]
    for k, several in enumerate(zip(*inputs, strict=True)):
        _constants(several)
        _shapes([i.value for i in several], fit, f"input {several[0].name}")
        for known, given in zip(places, several, strict=True):
            known[given.value] = -1 - k
    for alike in zip(*nodes, strict=True):
        _node(alike, graphs[0], places, fit)
    ends = [[known[o.value] for o in g.outputs] for g, known in zip(graphs, places, strict=True)]
    if any(e != ends[0] for e in ends):
        raise UnsupportedError("the outputs depend on an input size")
    return graphs[0]


def _constants(several: Sequence[Any]) -> None:
    data = [i.data for i in several]
    if any((d is None) != (data[0] is None) or (d is not None and not np.array_equal(d, data[0])) for d in data):
        raise UnsupportedError(
            f"the constant {several[0].name}, an array of {several[0].value.type}, depends on an input size"
        )


def _node(alike: Sequence[Node], graph: Graph, places: Sequence[dict[Value, int]], fit: Fit) -> None:
    first = alike[0]
    origin = graph.origin.get(first)
    where = f"{first.op.name} at {origin.source}" if origin and origin.source else first.op.name
    reads = [[known[v] for v in n.inputs] for n, known in zip(alike, places, strict=True)]
    if any(n.op is not first.op or n.attrs.keys() != first.attrs.keys() for n in alike) or reads[1:] != reads[:-1]:
        raise UnsupportedError(f"{where}: the graph's structure depends on an input size")
    first.attrs = {name: _attribute([n.attrs[name] for n in alike], fit, f"{name} of {where}") for name in first.attrs}
    for several in zip(*[n.outputs for n in alike], strict=True):
        _shapes(several, fit, where)
        for known, value in zip(places, several, strict=True):
            known[value] = len(known)


def _copied(region: Graph) -> Graph:
    """A copy of a region: recordings share them."""
    new = Graph(region.name)
    operands = [new.add_input(v.type, f"in{k}") for k, v in enumerate(inputs_of(region))]
    for value in inline(new, region, operands):
        new.add_output(value)
    return new


def _attribute(values: Sequence[Any], fit: Fit, where: str) -> Any:
    if isinstance(values[0], tuple):
        if len({len(v) for v in values}) > 1:
            raise UnsupportedError(f"{where}: the length depends on an input size")
        return tuple(_attribute(several, fit, where) for several in zip(*values, strict=True))
    if isinstance(values[0], int | float) and not isinstance(values[0], bool):
        return fit.number(values, where)
    if isinstance(values[0], Graph):
        return generalize([_copied(values[0]), *values[1:]], fit)
    if any(str(v) != str(values[0]) for v in values):
        raise UnsupportedError(f"{where} depends on an input size")
    return values[0]


def _shapes(several: Sequence[Value], fit: Fit, where: str) -> None:
    if len({v.ndim for v in several}) > 1 or len({v.dtype for v in several}) > 1:
        raise UnsupportedError(f"{where}: the type depends on an input size")
    shape = tuple(fit.number(sizes, f"the shape of {where}") for sizes in zip(*[v.shape for v in several], strict=True))
    several[0].type = TensorType(several[0].dtype, shape)
