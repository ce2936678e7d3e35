"""The parameters of a call that may share memory."""

from __future__ import annotations

from tracecomp.ir.program import CallStep, Ref


def _space(ref: Ref) -> tuple[str, int]:
    # All of the arena is one space: values there may overlap by design (in-place updates).
    return ("arena", 0) if ref.slot.space == "arena" else (ref.slot.space, ref.slot.position)


def _start(ref: Ref) -> int:
    return ref.slot.position if ref.slot.space == "arena" else 0


def overlapping(call: CallStep) -> dict[str, str]:
    """The alias group of each parameter: those that share memory with a written one are in its group."""
    params = call.kernel.params
    group = {p.name: i for i, p in enumerate(params)}
    for i, (p, a) in enumerate(zip(params, call.args, strict=True)):
        for q, b in list(zip(params, call.args, strict=True))[:i]:
            # Read-only parameters may share memory freely.
            written = p.name in call.kernel.writes or q.name in call.kernel.writes
            sizes = (p.size * p.dtype.itemsize, q.size * q.dtype.itemsize)
            if written and _space(a) == _space(b) and _may_meet(a, b, sizes):
                old, new = group[p.name], group[q.name]
                # Groups merge: sharing is transitive for the order of accesses.
                group = {name: new if g == old else g for name, g in group.items()}
    return {name: f"group{g}" for name, g in group.items()}


def _may_meet(a: Ref, b: Ref, sizes: tuple[int, int]) -> bool:
    # The distance may depend on a loop's step (a scan's stacked values): its bounds decide.
    apart = (a.offset - b.offset) + (_start(a) - _start(b))
    bounds = apart.bounds
    return bounds is None or (bounds[0] < sizes[1] and bounds[1] > -sizes[0])
