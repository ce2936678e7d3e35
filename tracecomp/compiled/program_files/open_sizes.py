"""Programs for ranges of sizes: recordings that serve a range, and graphs for boxes that cover it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.open_sizes import OpenSizes, probes
from tracecomp.ir.graph import Graph
from tracecomp.record.dynamic_shapes.instantiate import Instantiated
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.recording import Recording, Sizes
from tracecomp.record.size_forms import Box, Form
from tracecomp.record.symbolic.sizes import SizeSource
from tracecomp.record.symbolic.sym_int import SymInt

Json = Any
MOST_PATHS = 16
"""Recordings of one function for a range of sizes: one that needs more is another program at every size."""
MOST_BOXES = 64
"""Graphs for one recording."""
_ROUNDS = 6
"""Calls after which a recording serves the sizes it was made for: the first may find what moves from call to call."""


@dataclass(frozen=True)
class LeftOpen:
    """The dynamic sizes of a path: their names, by leaf and axis, and the range of each."""

    names: Mapping[SizeSource, str]
    ranges: Mapping[str, tuple[int, int]]

    def _name(self, same: Sequence[SizeSource]) -> str:
        found = [self.names[source] for source in same if source in self.names]
        if not found or same[0].holder[0] != "argument":
            raise NotSized("a dynamic size does not come from an argument")
        return found[0]

    def box(self, sizes: Sizes) -> Box:
        """The requested sizes for which recordings are valid."""
        found = []
        for same, held in zip(sizes.sources, sizes.conditions.ranges, strict=True):
            low, high = self.ranges[self._name(same)]
            found.append((max(low, held.low), high if held.high is None else min(high, held.high)))
        return found

    def described(self, sizes: Sizes, argument: Mapping[int, int]) -> Json:
        """The loader's description; ``argument`` maps a leaf to the number of its array."""
        held = sizes.conditions
        ranges = [(low, high, sorted(r.without)) for (low, high), r in zip(self.box(sizes), held.ranges, strict=True)]
        return {
            "names": [self._name(same) for same in sizes.sources],
            "sources": [[(argument[source.holder[1]], source.axis) for source in same] for same in sizes.sources],
            "ranges": ranges, "zero": [*map(terms, held.zero)], "other": [*map(terms, held.other)],
            "positive": [*map(terms, held.positive)],
        }  # fmt: skip


def terms(form: Form) -> Json:
    """A number that follows from sizes, as ``tracecomp_runtime.open_sizes`` reads it."""
    return [
        ([atom if isinstance(atom, int) else (terms(atom.of), atom.by) for atom in atoms], factor)
        for atoms, factor in form.terms
    ]


def told_number(value: object) -> Json:
    """A number, or a tuple of numbers, as a file tells it."""
    if type(value) is SymInt:
        return terms(value.form)
    return [*map(told_number, value)] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Served:
    """A recording, whether for more sizes than those that it was made ``at``, and the arguments of that call."""

    recording: Recording
    sized: bool
    at: Mapping[str, int]
    args: tuple[object, ...]

    def serves(self, sizes: Mapping[str, int], left_open: LeftOpen) -> bool:
        """Whether calls with these sizes are among its own."""
        known = self.recording.sizes
        if not self.sized or known is None:
            return sizes == self.at
        names = [{left_open.names[source] for source in same} for same in known.sources]
        fixed = sizes.keys() - {name for same in names for name in same}
        if any(sizes[name] != self.at[name] for name in fixed):
            return False
        found = [{sizes[name] for name in same} for same in names]
        return all(len(one) == 1 for one in found) and known.conditions.holds([min(one) for one in found])


def served(
    name: str, args: Sequence[object], asked: OpenSizes, left_open: LeftOpen,
    fitting: Callable[[tuple[object, ...]], tuple[Recording, bool] | None], call: Callable[..., object],
) -> list[Served]:  # fmt: skip
    """Recordings that serve the whole of the ranges: ``call`` is called until ``fitting`` finds one.

    CaptureError where no few recordings do.
    """
    made: list[Served] = []
    for sizes in probes(left_open.ranges):
        if any(one.serves(sizes, left_open) for one in made):
            continue
        given = asked.resized(args, sizes)
        for _ in range(_ROUNDS):
            call(*given)
            if best := fitting(given):
                break
        else:
            cause = f"{name} cannot be saved for all sizes: every call needs a new recording"
            raise CaptureError(str(BreakReason(cause, Section.FIND)))
        made.append(Served(*best, sizes, given))
        made = [one for one in made if one.sized or not any(o.sized and o.serves(one.at, left_open) for o in made)]
        if len(made) > MOST_PATHS:
            cause = f"{name} cannot be saved for all sizes: the graph's structure depends on an input size"
            raise CaptureError(str(BreakReason(cause, Section.SIZES)))
    return made


def covering(graph: Graph, sizes: Sizes, box: Box) -> list[Instantiated]:
    """Graphs that serve the whole of ``box``; NotSized where they would be too many."""
    found: list[Instantiated] = []
    open_boxes: list[Box] = [*_classes(box)]
    why = ""
    while open_boxes:
        if len(found) + len(open_boxes) > MOST_BOXES:
            raise NotSized(f"the ranges take more than {MOST_BOXES} graphs{why}; narrow them")
        one = open_boxes.pop(0)
        try:
            found.append(Instantiated(graph, sizes, one))
        except NotSized as reason:
            halves = [*_halves(one, reason.only or range(len(one)))]
            if len(halves) == 1:
                raise
            open_boxes, why = halves + open_boxes, f" ({reason})"
    return found


def _classes(box: Box) -> Iterator[Box]:
    """``box`` split into boxes of sizes up to the next of 2, 3, 4, 8, 16, ...: padding costs work.

    The order of sums may differ for two, three and four rows, and from 64 elements on: no box contains both.
    """
    axes = []
    for low, high in box:
        powers = {(1 << k) - (k == 6) for k in range(1, high.bit_length() + 1)}
        ends = sorted({n for n in powers | {3} if low <= n < high} | {high})
        axes.append([*zip([low, *(n + 1 for n in ends)], ends, strict=False)])
    return map(list, product(*axes))


def _halves(box: Box, along: Any) -> Iterator[Box]:
    axes = [
        [(low, (low + high) // 2), ((low + high) // 2 + 1, high)] if k in along and low < high else [(low, high)]
        for k, (low, high) in enumerate(box)
    ]
    return map(list, product(*axes))


def checked_sizes(path: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]]) -> None:
    """ValueError unless a file's description of dynamic sizes uses valid numbers of sizes."""
    sizes = path["sizes"]
    count, arguments = len(sizes["names"]), path["arguments"]
    if not count == len(sizes["sources"]) == len(sizes["ranges"]):
        raise ValueError("names, axes and ranges of sizes must have the same length")
    for same in sizes["sources"]:
        if not same or any(not 0 <= axis < len(arguments[argument][1]) for argument, axis in same):
            raise ValueError("a size names an unknown axis")
    pairs = [tuple(pair) for piece in pieces for pair in piece["box"]] + [
        (low, high) for low, high, _ in sizes["ranges"]
    ]
    if any(len(piece["box"]) != count for piece in pieces) or any(type(n) is not int for pair in pairs for n in pair):
        raise ValueError("the sizes of a graph must be numbers")
    # Whatever says a size is a number, or a form of the sizes: all are gathered, so that none is left unchecked.
    views = [attrs for *_, view in path["results"] for _, attrs in view or ()]
    told = [shape for _, shape, *_ in (*arguments, *path["outputs"])] + [v for a in views for v in a.values()]
    told += [sizes[name] for name in ("zero", "other", "positive")]
    told += [[extent] for piece in pieces for extent, _ in piece["blocks"]]
    for number in (n for several in told for n in several):
        _check_number(number, count, 0)


def _check_number(told: Any, count: int, depth: int) -> None:
    if type(told) is int:
        return
    if depth > 8:
        raise ValueError("a size expression is nested too deep")
    for atoms, factor in told:
        if type(factor) is not int or len(atoms) > 8:
            raise ValueError("a size expression has a non-integer factor")
        for atom in atoms:
            if type(atom) is int and not 0 <= atom < count:
                raise ValueError(f"a size expression uses the unknown size {atom}")
            if type(atom) is not int:
                of, by = atom
                if type(by) is not int or by <= 0:
                    raise ValueError("a quotient lacks its divisor")
                _check_number(of, count, depth + 1)
