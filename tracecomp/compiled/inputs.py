"""Facts about a recording's inputs for code generation."""

from __future__ import annotations

from tracecomp.record.recording import Recording


def aliases_of(recording: Recording) -> dict[int, int]:
    """Outputs that are written over inputs: not where a path may turn out to be another call's."""
    if recording.may_be_left:
        return {}
    position = {id(b): i for i, b in enumerate(recording.inputs)}
    pairs = [(out, position.get(id(b))) for b, out in recording.updates]
    return {out: i for out, i in pairs if i is not None}


def frozen_inputs(recording: Recording) -> frozenset[int]:
    """The numbers of inputs that are likely to be the same in the next call: state, where nothing is trained.

    A tensor whose memory numpy shares can change unnoticed, so each call would have to prepare it again.
    """
    if recording.split is not None or recording.grads:
        return frozenset()
    written = {id(b.ref._shared_storage().memory) for b, _ in recording.writes if b.kind == "state"}
    states = [(n, b.ref._shared_storage().memory) for n, b in enumerate(recording.inputs) if b.kind == "state"]
    return frozenset(n for n, memory in states if id(memory) not in written and memory.writes is not None)
