"""The pipeline from a recorded graph to a program, and the runner of its steps.

PIPELINE rewrites the graph; LOWERING builds a program from it, frame by frame (``program/frame.py``). The runner times,
verifies, dumps, skips and stops the steps of both alike, and names the step that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from tracecomp.base import config, logs, progress
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.printer import print_graph
from tracecomp.ir.program import Program
from tracecomp.ir.verify import verify
from tracecomp.passes import reproduction
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.explain import frame_size, graph_size
from tracecomp.passes.fusion.groups import Partition
from tracecomp.passes.graph import (
    complex_to_real,
    constant_folding,
    dead_code,
    layout,
    loop_invariants,
    rule_sets,
    scan_accumulators,
    split_reductions,
)
from tracecomp.passes.program import lower as lowering
from tracecomp.passes.program.frame import Frame, frame_of
from tracecomp.passes.program.frame_text import print_frame
from tracecomp.passes.program.frame_verify import verify_frame
from tracecomp.passes.program.prepacking import frozen_values
from tracecomp.passes.schedule.records import Given, ScheduleError
from tracecomp.passes.steps import Log, Run, Stage, State, Step

PIPELINE: tuple[Step[Graph], ...] = (
    # Complex values first, so that no other pass has to support them.
    Step("complex_to_real", complex_to_real.split_complex, "complex values as pairs of real ones"),
    # Simplified before folding, so that less is computed.
    Step("simplify", rule_sets.simplify, "bit-exact algebra on scalars and shapes"),
    Step("constant_folding", constant_folding.fold_constants, "compute constant expressions"),
    # Decomposed before the layout is chosen, because the layout weighs convolutions.
    Step("decompose", rule_sets.decompose, "padding, transposed convolutions and composed operators, spelled out"),
    Step("layout", layout.plan, "channels last where convolutions gain from it; convolutions become contractions"),
    # After the layout, because it turns convolutions into contractions.
    Step("canonical", rule_sets.canonicalise, "one spelling for contractions and reductions"),
    Step("scan_accumulators", scan_accumulators.sum_after_scans, "sums over the steps of a scan, once after it"),
    # Orders of sums are fixed here, on operands in their final layout.
    Step("split_reductions", split_reductions.split_reductions, "long reductions in two stages"),
    # Late, as earlier passes still change the work that a scan's steps repeat.
    Step("loop_invariants", loop_invariants.hoist, "loop-invariant work of scans, once before the scan"),
    Step("dead_code", dead_code.remove_dead_code, "unused results of control operators"),
)

LOWERING: tuple[Step[Frame], ...] = (
    Step("fusion", lowering.fuse, "groups of nodes as kernels, with their stores", lowering.one_kernel_per_node),
    Step("implicit_padding", lowering.pad_implicitly, "contractions that pad their operands while reading"),
    # After padding became implicit: an implicit pad is not a part that a concatenation could place.
    Step("concat_in_place", lowering.concat_in_place, "parts of concatenations, stored within the whole"),
    # On final kernels and their slices, which blocks of rows have to respect.
    Step("row_fusion", lowering.fuse_rows, "kernels with the same rows, as one loop over blocks of rows"),
    Step("output_buffers", lowering.place_outputs, "kernels that write outputs and states in place", needed=True),
    Step("kernels", lowering.make_kernels, "loop nests, scheduled for the machine", needed=True),
    Step("prepacking", lowering.prepack, "values that depend on frozen inputs only, once for many calls"),
    Step("arena", lowering.plan_memory, "temporary values in one block of memory, by lifetimes", lowering.own_memory),
    Step("program", lowering.make_program, "kernel calls with memory addresses", needed=True),
)

FUSING = frozenset({"fusion", "implicit_padding", "concat_in_place", "row_fusion"})
"""Steps that the setting ``fusion`` turns off."""


@dataclass(frozen=True)
class _Form(Generic[State]):
    """Printing and checking of one kind of state, and the script that runs one of its steps alone."""

    text: Callable[[State], str]
    verify: Callable[[State], None]
    script: Callable[[str, State], str]
    graph: Callable[[State], Graph]
    size: Callable[[State], str]


def _frame_text(frame: Frame) -> str:
    """The plan; if there is a program, the program."""
    return print_frame(frame) if frame.program is None else print_program(frame.program)


_GRAPHS = _Form(partial(print_graph, comments=True), verify, reproduction.of_pass, lambda graph: graph, graph_size)
_FRAMES = _Form(_frame_text, verify_frame, reproduction.of_lowering_step, lambda frame: frame.graph, frame_size)


def run(graph: Graph, dump: Dump, passes: tuple[Step[Graph], ...] = PIPELINE) -> list[Stage[Graph]]:
    """Return ``graph`` after each pass, the recorded graph first; CompileError names the pass that failed.

    Obeys the settings ``skip_passes``, ``stop_after``, ``verify`` and ``dump``.
    """
    settings = config.current()
    # Names are checked against both tuples: one setting covers both.
    _refuse(settings.skip_passes, (*passes, *LOWERING))
    return _run(passes[: settings.stop_after], Stage("recorded", graph), _GRAPHS, dump, {*settings.skip_passes})


@dataclass(frozen=True)
class Lowered:
    """The frame after each lowering step, starting with the initial one."""

    stages: list[Stage[Frame]]

    @property
    def frame(self) -> Frame:
        """The outermost frame, with all its fields."""
        return self.stages[-1].state

    @property
    def program(self) -> Program:
        assert self.frame.program is not None
        return self.frame.program

    @property
    def constants(self) -> list[Any]:
        """Arrays that the program takes after the graph's own inputs."""
        return list(self.frame.constants)

    @property
    def partition(self) -> Partition:
        """Which nodes are one kernel."""
        return self.frame.partition


def lower(
    graph: Graph,
    aliases: Mapping[int, int] | None = None,
    machine: Machine | None = None,
    frozen: Set[int] = frozenset(),
    dump: Dump | None = None,
    given: Given | None = None,
) -> Lowered:
    """Lower an optimised graph, whose control operators have optimised bodies, to a program.

    ``aliases[o] = i`` promises that in every call output ``o`` is the memory of input ``i`` (a state updated in place).
    A kernel writes there directly if the old contents are not read later; otherwise a copy at the end does. ``frozen``
    are the numbers of inputs that keep their values, so that a call can use the prepacked values of an earlier one.
    ``machine`` defaults to the host. ``given`` are schedules written by hand. Obeys the settings as ``run`` does,
    except for required steps.
    """
    settings = config.current()
    known = frozen_values(graph, {graph.inputs[n].value for n in frozen})
    frame = frame_of(graph, aliases or {}, machine or host(), known, given)
    # One setting instead of four names, as "without fusion" is one configuration for ``compare``.
    skipped = {*settings.skip_passes, *(() if settings.fusion else FUSING)}
    if settings.stop_after is not None:
        # Steps are numbered through both tuples; required steps run in any case.
        skipped.update(s.name for s in LOWERING[max(settings.stop_after - len(PIPELINE), 0) :] if not s.needed)
    return Lowered(_run(LOWERING, Stage("lowering", frame), _FRAMES, dump or Dump("", enabled=False), skipped))


def resumed(frame: Frame, first: str, last: str = "program") -> Frame:
    """Return the frame after the steps from ``first`` to ``last``, verified after each."""
    names = [s.name for s in LOWERING]
    for step in LOWERING[names.index(first) : names.index(last) + 1]:
        frame = step.run(frame, Log())
        verify_frame(frame)
    return frame


def _refuse(skipped: Sequence[str], steps: Sequence[Step[Any]]) -> None:
    """ValueError for steps to skip that do not exist or are required."""
    unknown = sorted({*skipped} - {s.name for s in steps})
    if unknown:
        raise ValueError(f"no pass called {', '.join(unknown)}; there are {', '.join(s.name for s in steps)}")
    needed = [s.name for s in steps if s.needed and s.name in skipped]
    if needed:
        raise ValueError(f"required steps cannot be skipped: {', '.join(needed)}")


def _run(
    steps: Sequence[Step[State]], first: Stage[State], form: _Form[State], dump: Dump, skipped: Set[str]
) -> list[Stage[State]]:
    """Run the steps and return the states after them; a skipped step runs its replacement, if it has one."""
    stages = [first]
    progress.expect(len(steps))
    _write(dump, first, form)
    for step in steps:
        # ``without`` keeps the state's form, so that later steps need not know which step was skipped.
        if step.name not in skipped:
            stages.append(_run_step(step.name, step.run, stages[-1].state, form))
        elif step.without is not None:
            stages.append(_run_step(f"without_{step.name}", step.without, stages[-1].state, form))
        else:
            continue
        _write(dump, stages[-1], form)
        progress.advance(step.name)
        if logs.wanted("passes"):
            _log(stages[-1], form)
    return stages


def _log(stage: Stage[State], form: _Form[State]) -> None:
    graph = form.graph(stage.state)
    hits = ", ".join(f"{n} x {rule}" for rule, n in stage.log.hits.most_common() if n)
    logs.log("passes", f"{graph.name}: {stage.name} {stage.seconds * 1e3:.1f} ms, {form.size(stage.state)}; {hits}")


def _write(dump: Dump, stage: Stage[State], form: _Form[State]) -> None:
    dump.write(stage.name, lambda: form.text(stage.state))


def _run_step(name: str, action: Run[State], state: State, form: _Form[State]) -> Stage[State]:
    log = Log()
    start = time.perf_counter()
    try:
        result = action(state, log)
        if config.current().verify:
            # Verified inside the ``try``: the step is at fault if its result breaks a rule.
            form.verify(result)
    except ScheduleError:
        # An unusable schedule by hand is the caller's mistake, not a bug: no reproduction.
        raise  # the schedule is at fault, not the step
    except Exception as error:  # re-raised with a reproduction
        # The state before the step reproduces the failure.
        path = reproduction.write(name, form.script(name, state))
        where = f"pass {name} failed on graph {form.graph(state).name}"
        notes = "".join(f"\nin {note}" for note in getattr(error, "__notes__", ()))
        text = f"{where}: {type(error).__name__}: {error}{notes}\nreproduce with: python {path}"
        raise CompileError(text, name.removeprefix("without_")) from error
    return Stage(name, result, log, time.perf_counter() - start)
