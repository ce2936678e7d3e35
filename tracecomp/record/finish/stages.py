"""The stages from the end of a recorded call to its recording. Their order has meaning: each says why it is there."""

from __future__ import annotations

from collections.abc import Callable

from tracecomp.record.caught_errors import may_raise
from tracecomp.record.finish.closing import close_guards, find_shared_memory
from tracecomp.record.finish.derivative import choose_roots, run_backward_pass, sizes_of, split_graph
from tracecomp.record.finish.draft import Draft
from tracecomp.record.finish.inputs import bind_inputs, bind_sizes, extract_graph
from tracecomp.record.finish.left_objects import collect_tensors, collect_values
from tracecomp.record.finish.outputs import add_gradients, add_predicates, add_results, add_updates, flags, writes
from tracecomp.record.finish.settled import check_settled, stores_new_tensors
from tracecomp.record.guards.guards import Guards
from tracecomp.record.observer import Observer
from tracecomp.record.pytree import Leaves
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Rebased, Recording

STAGES: tuple[Callable[[Draft], None], ...] = (
    bind_inputs,  # outputs refer to tensors from outside by their sources
    collect_values,  # code that is not recorded may have stored further tensors: its effects are found here
    collect_tensors,  # the roots are chosen among all tensors that the call leaves
    choose_roots,  # a result's representation includes its number among the roots
    add_results,  # results may add sizes to the graph
    add_updates,
    add_gradients,  # a gradient may be a view of a result
    add_predicates,  # all other outputs decide which communications the graph still has to keep
    run_backward_pass,  # it starts from the complete forward graph, and its hooks may capture more state
    bind_sizes,  # results and the backward pass may have added sizes
    split_graph,  # the saved values are the last outputs
    extract_graph,  # all outputs are known; from here on nothing may be added
    close_guards,  # guards compare what the extracted graph reads and writes; the program's code runs no more
    find_shared_memory,
    check_settled,  # it judges the complete draft
)
"""The stages in order, each with the reason why it follows those before it."""


def build_recording(
    recorder: Recorder, guards: Guards, leaves: Leaves, result: object, observer: Observer, derive: bool
) -> Recording:
    """The recording of a call that has returned ``result``. Raises CaptureError if a graph cannot repeat it."""
    recorder.memory.check()
    draft = Draft(recorder, guards, leaves, result, observer, derive)
    try:
        return _built(draft)
    finally:
        # Functions of stages refer to it and to themselves. The call's objects would stay until a collection.
        vars(draft).clear()


def _built(draft: Draft) -> Recording:
    recorder = draft.recorder
    for stage in STAGES:
        stage(draft)
    recording = Recording(
        graph=draft.graph, guards=draft.guards, inputs=draft.inputs, structure=draft.value.structure,
        results=draft.results, updates=draft.updates, writes=writes(draft), grads=draft.grads,
        requires_grad=flags(draft), predicates=draft.predicates, split=draft.split,
        rebased=[Rebased(draft.sources.origin(t), draft.held.place(t)) for t in draft.rebased], rebound=draft.rebound,
        effects=draft.repeats, sizes=sizes_of(recorder, draft.mapping), shared=draft.shared,
        catches=recorder.catches and may_raise(draft.graph), unsettled=draft.unsettled,
    )  # fmt: skip
    # Last, because it drops the recorder's references, to see which tensors live on without them.
    recording.unsettled = recording.unsettled or stores_new_tensors(draft)
    return recording
