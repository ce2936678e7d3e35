"""Recordings for every size of a leading dimension, from a recording and another that confirms it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph
from tracecomp.record.binding import Binding
from tracecomp.record.dynamic_shapes.instantiate import Instantiated, check_same
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.recording import Recording, Split
from tracecomp.record.results import Given, Seen, bottoms
from tracecomp.record.symbolic.sym_int import evaluated, forms


@dataclass
class Sized:
    """A recording with guards for more sizes, which ``says`` puts in words; ``leaf`` is an argument that has it."""

    recording: Recording
    leaf: int
    says: str

    def size(self, leaves: Sequence[Any]) -> int:
        """The size of a call."""
        leaf = leaves[self.leaf]
        return len(leaf._data if isinstance(leaf, Tensor) else leaf)

    def settle(self, leaves: Sequence[Any], attrs: dict[str, Any]) -> dict[str, Any]:
        """``attrs`` for the size of a call."""
        return {k: evaluated(x, self.leaf, self.size(leaves)) for k, x in attrs.items()}

    def stretched(self, graph: Graph, rows: int) -> Instantiated:
        """The recording's graph, or that of its derivative, for up to ``rows`` rows; NotSized when there is none."""
        split = self.recording.split
        sizes = split.sizes if split is not None and graph is split.backward else self.recording.sizes
        assert sizes is not None
        found = Instantiated(graph, sizes, self.leaf, rows)
        if not any(found.rows_in):
            raise NotSized("nothing that has the size is read, only the size itself")
        return found


def sized(first: Recording, second: Recording) -> Sized:
    """``second`` for every size, if ``first`` is what that says for another size; NotSized says why not."""
    leaf = _growing(first, second)
    assert first.sizes is not None and second.sizes is not None
    leaves, holds = second.sizes.leading[leaf], second.sizes.ranges[leaf]
    least = min(holds.value, first.sizes.ranges[leaf].value)
    if not holds.holds(first.sizes.ranges[leaf].value):
        where = f"{holds.fixed_at} needs" if holds.fixed_at else "the path taken depends on"
        raise NotSized(f"{where} the size itself")
    _check_alike(first, second)
    size = first.sizes.ranges[leaf].value
    check_same(first.graph, second.graph, second.sizes, leaf, size)
    guards = second.guards.for_sizes(leaves, lambda n: n >= least and holds.holds(n))
    found = Sized(replace(second, guards=guards, calls=0), leaf, _says(second, leaf, least))
    _check_rows(second, found.stretched(second.graph, holds.value))
    graphs = [second.graph]
    if first.split is not None and second.split is not None:
        assert second.split.sizes is not None
        check_same(first.split.backward, second.split.backward, second.split.sizes, leaf, size)
        graphs.append(second.split.backward)
    for graph in graphs:  # what works for the size at hand only is found out here and not in a later call
        found.stretched(graph, 2 * holds.value + 1)
    return found


def _says(recording: Recording, leaf: int, least: int) -> str:
    assert recording.sizes is not None
    holds = recording.sizes.ranges[leaf]
    text = f"of {recording.guards.paths[leaf]} from {max(least, holds.low)} on"
    if holds.high is not None:
        text += f" to {holds.high}"
    return text + "".join(f", not {n}" for n in sorted(holds.without) if n >= least)


def _growing(first: Recording, second: Recording) -> int:
    """The argument whose first size differs."""
    if first.sizes is None or second.sizes is None or first.sizes.leading != second.sizes.leading:
        raise NotSized("sizes of arguments that were equal are not, or numbers are equal to one by chance")
    before, after = first.guards.shapes(), second.guards.shapes()
    if first.guards.structure != second.guards.structure or before.keys() != after.keys():
        raise NotSized("the arguments have another structure")
    if any(before[i][1:] != after[i][1:] or len(before[i]) != len(after[i]) for i in before):
        raise NotSized("other sizes of the arguments than the first differ")
    differ = [i for i in first.sizes.leading if before[i] != after[i]]
    if len(differ) != 1:
        raise NotSized("the arguments differ in no size, or in several")
    return differ[0]


def _check_alike(first: Recording, second: Recording) -> None:
    """That two recordings differ at most in their graphs."""
    if first.effects or second.effects or first.rebased or second.rebased:
        raise NotSized("the call steps a schedule, or gives an argument a history")
    pairs = [
        (_shown_split(first.split), _shown_split(second.split)),
        ([_bound(b) for b in first.inputs], [_bound(b) for b in second.inputs]),
        (first.structure, second.structure),
        (list(map(_shown, first.results)), list(map(_shown, second.results))),
        ([(_bound(b), n) for b, n in first.updates], [(_bound(b), n) for b, n in second.updates]),
        ([(_bound(b), n) for b, n in first.writes], [(_bound(b), n) for b, n in second.writes]),
        ([(_bound(b), _shown(n)) for b, n in first.grads], [(_bound(b), _shown(n)) for b, n in second.grads]),
        ([(_bound(b), n) for b, n in first.requires_grad], [(_bound(b), n) for b, n in second.requires_grad]),
        ([(p.number, p.seen) for p in first.predicates], [(p.number, p.seen) for p in second.predicates]),
        ([(r.place, list(map(_shown, r.results))) for r in first.rebound],
         [(r.place, list(map(_shown, r.results))) for r in second.rebound]),
    ]  # fmt: skip
    if any(a != b for a, b in pairs):
        raise NotSized("the size changes what the call reads, returns or writes")


def _bound(binding: Binding) -> Any:
    if isinstance(binding.ref, Binding):
        return (binding.kind, _bound(binding.ref))
    ref = binding.ref
    return (binding.kind, tuple(map(_identity, ref)) if isinstance(ref, tuple) else _identity(ref))


def _identity(ref: Any) -> Any:
    return ref if isinstance(ref, int | str) else id(getattr(ref, "group", ref))


def _shown(result: Any) -> Any:
    if isinstance(result, Given):
        return _bound(result.source)
    if isinstance(result, Seen):
        steps = [(op.name, forms(attrs)) for op, attrs in result.steps]
        own = (result.linked, result.apart, result.history, _shown(result.grad), result.kind, result.unwritable)
        return (_shown(result.of), steps, *own)
    return result


def _shown_split(split: Split | None) -> Any:
    if split is None:
        return None
    saved = [b if isinstance(b, int) else _bound(b) for b in split.saved]
    return saved, [(_bound(b), n) for b, n in split.wanted], split.roots


def _check_rows(recording: Recording, stretched: Instantiated) -> None:
    """That only arguments and results grow."""
    for binding, rows in zip(recording.inputs, stretched.rows_in, strict=True):
        if rows is not None and binding.kind != "argument":
            raise NotSized("the size changes the shape of state")
    kept = [n for _, n in recording.updates]
    kept += [r.number for b in recording.rebound for r in bottoms(b.results)]
    if any(stretched.rows_out[n] is not None for n in kept):
        raise NotSized("the call writes values whose shape the size changes")
