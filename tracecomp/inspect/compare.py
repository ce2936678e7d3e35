"""``compare``: the same call eagerly, as a recorded graph, after each pass, kernel by kernel and as native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tracecomp.base.dump import Dump
from tracecomp.compiled.differences import Difference, changed_in_the_last_place, difference, worst
from tracecomp.compiled.locate import after_pass, every_value, first_bad_node, first_bad_step, part_of, run_native
from tracecomp.inspect.capture import capture
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.interpret import interpret
from tracecomp.passes import pipeline
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.graph.complex_to_real import in_parts, split_complex
from tracecomp.passes.graph.host_segments import has_external, segments
from tracecomp.passes.pipeline import PIPELINE, lower
from tracecomp.passes.steps import Log, Stage

Array = np.ndarray[Any, Any]
Report = Callable[[str], None]

KERNEL_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}
"""Agreement of one kernel with the interpreter on the same operands, relative to the largest element."""


@dataclass(frozen=True)
class StageResult:
    """How far the outputs of one stage are from those of the stage before."""

    name: str
    differences: list[Difference | None]

    @property
    def worst(self) -> Difference:
        return worst([d for d in self.differences if d is not None])


@dataclass(frozen=True)
class Divergence:
    """Where a fault was found: the stage, the first diverging node as text, the user's line, the lowering step."""

    stage: str
    node: str
    source: str
    kernel: str = ""
    step: str = ""

    def __str__(self) -> str:
        where = f" in kernel {self.kernel}" if self.kernel else ""
        step = f"\n  wrong from lowering step {self.step} on" if self.step else ""
        return f"first diverging node{where}: {self.node}\n  from {self.source}{step}"


@dataclass
class Comparison:
    """The outcome of ``compare``. ``print`` shows it; ``ok`` is whether everything agrees."""

    name: str
    outputs: list[str] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    native: list[Difference] = field(default_factory=list)
    kernels: int = 0
    divergence: Divergence | None = None
    tolerance: float | None = None

    @property
    def ok(self) -> bool:
        return self.divergence is None and all(s.worst.agrees(self.tolerance) for s in self.stages)

    def __str__(self) -> str:
        lines = [f"compare {self.name}: outputs {len(self.outputs)}, kernels {self.kernels}"]
        width = max((len(s.name) for s in self.stages), default=0)
        lines += [f"  {s.name:<{width}}  {self._mark(s.worst)}  {s.worst}" for s in self.stages]
        if self.native:
            lines.append("outputs, native against the recorded graph:")
            lines += [f"  {name}: {d}" for name, d in zip(self.outputs, self.native, strict=False)]
        lines.append("everything agrees" if self.ok else str(self.divergence or "outputs differ"))
        return "\n".join(lines)

    def _mark(self, found: Difference) -> str:
        return "agrees " if found.agrees(self.tolerance) else "DIFFERS"


def compare(
    fn: Callable[..., Any],
    *args: Any,
    tolerance: float | None = None,
    report: Report = lambda line: None,
    **kwargs: Any,
) -> Comparison:
    """Run ``fn(*args, **kwargs)`` in every form it takes on its way to native code, and compare them.

    Eagerly, as the recorded graph (numpy interpreter), after each pass, kernel by kernel and as a whole natively.
    When two neighbours differ, the first diverging node and the user's line are searched for. ``tolerance`` bounds the
    difference relative to the largest element of an output (default: by type, see ``compiled.differences``); ``report``
    is called with a line of progress per stage. State is left as the recording's calls leave it: one, or more if the
    first ones make state. CaptureError when ``fn`` cannot be recorded.
    """
    report("recording")
    captured = capture(fn, args, kwargs)
    result = Comparison(captured.graph.name, tolerance=tolerance)
    recorded = _Comparing(result, captured.arrays, report).run(captured.graph, captured.eager)
    backward = captured.backward(recorded)
    if backward is not None and result.ok:
        graph, arrays = backward
        _Comparing(result, arrays, report, "backward ").run(graph, [None] * len(graph.outputs))
    return result


class _Comparing:
    """Compares the stages of one graph; ``part`` stands before their names."""

    def __init__(self, result: Comparison, arrays: list[Array], report: Report, part: str = "") -> None:
        self.result = result
        self.arrays = arrays
        self.report: Report = lambda line: report(part + line)
        self.part = part
        self.moved: list[Array] = []

    def run(self, graph: Graph, eager: Sequence[Array | None]) -> list[Array]:
        """Fill the result; returns the outputs of the recorded graph, complex ones as in memory."""
        result = self.result
        graph = split_complex(graph, Log())
        self.arrays = [*map(in_parts, self.arrays)]
        eager = [None if e is None else in_parts(e) for e in eager]
        result.outputs += [f"{self.part}{o.role} {o.name} {o.value.type}" for o in graph.outputs]
        self.report("interpreting the recorded graph")
        recorded = interpret(graph, self.arrays)
        self.moved = interpret(graph, changed_in_the_last_place(self.arrays))
        against = [e if e is None else difference(r, e) for r, e in zip(recorded, eager, strict=True)]
        if not self._agree("recorded", against):
            bad = next(k for k, d in enumerate(against) if d is not None and not d.agrees(result.tolerance))
            result.divergence = self._at(graph, graph.outputs[bad].value.node, "recorded")
            return recorded
        self.report("running the passes")
        stages = pipeline.run(graph, Dump("", enabled=False))
        if self._passes(stages, recorded) and self._kernels(stages[-1].state):
            self._native(stages[-1].state, recorded)
        return recorded

    def _differences(self, found: list[Array], recorded: list[Array]) -> list[Difference]:
        return [difference(f, r, m) for f, r, m in zip(found, recorded, self.moved, strict=True)]

    def _agree(self, name: str, differences: Sequence[Difference | None]) -> bool:
        self.result.stages.append(StageResult(self.part + name, list(differences)))
        return all(d is None or d.agrees(self.result.tolerance) for d in differences)

    def _passes(self, stages: list[Stage[Graph]], recorded: list[Array]) -> bool:
        """Interpret after each pass; where the outputs move away, find the node."""
        for before, after in pairwise(stages):
            self.report(f"interpreting after {after.name}")
            found = interpret(after.state, self.arrays)
            if not self._agree(after.name, self._differences(found, recorded)):
                [step] = [p for p in PIPELINE if p.name == after.name]
                self.report(f"searching the node that {after.name} gets wrong")
                node = first_bad_node(before.state, self.arrays, after_pass(step), self.result.tolerance)
                self.result.divergence = self._at(before.state, node, after.name)
                return False
        return True

    def _kernels(self, graph: Graph) -> bool:
        """Run each kernel alone on the interpreter's operands."""
        values = every_value(graph, self.arrays)
        if not has_external(graph):
            return self._kernels_of(graph, values)
        for part in segments(graph):
            operands = [values[v] for v in part.reads]
            if isinstance(part.work, Graph) and not self._kernels_of(part.work, every_value(part.work, operands)):
                return False
        return True

    def _kernels_of(self, graph: Graph, values: dict[Value, Array]) -> bool:
        fused = lower(graph).stages[1]
        partition = fused.state.partition
        self.result.kernels += len(partition.groups)
        cut = {v for stored in partition.stored.values() for v in stored} | {i.value for i in graph.inputs}
        differences: list[Difference | None] = []
        for number, group in enumerate(partition.groups):
            self.report(f"kernel {number + 1} of {len(partition.groups)}")
            wanted = partition.stored[group]
            part, given = part_of(graph, graph.name, wanted, cut)
            operands = [np.asarray(values[v], order="C") for v in given]
            moved = interpret(part, changed_in_the_last_place(operands))
            found = run_native(part, operands)
            here = [difference(f, values[v], m) for f, v, m in zip(found, wanted, moved, strict=True)]
            differences += here
            if not all(d.agrees(KERNEL_TOLERANCE.get(d.dtype)) for d in here):
                self.result.stages.append(StageResult(self.part + "kernels", differences))
                node = first_bad_node(part, operands, run_native, KERNEL_TOLERANCE.get(worst(here).dtype))
                self.result.divergence = self._at(part, node, "kernels", _name(group))
                return False
        return self._agree("kernels", differences)

    def _native(self, graph: Graph, recorded: list[Array]) -> None:
        self.report("running native code")
        found = run_native(graph, self.arrays)
        differences = self._differences(found, recorded)
        self.result.native += differences
        if not self._agree("native", differences):
            node = first_bad_node(graph, self.arrays, run_native, self.result.tolerance)
            self.report("searching the lowering step that gets it wrong")
            step = first_bad_step(graph, self.arrays, recorded, self.moved, self.result.tolerance)
            self.result.divergence = replace(self._at(graph, node, "native"), step=step)

    def _at(self, graph: Graph, node: Node | None, stage: str, kernel: str = "") -> Divergence:
        stage = self.part + stage
        if node is None:
            return Divergence(stage, "none: every part agrees alone, only the whole differs", "the whole", kernel)
        origin = graph.origin[node]
        scope = f", scope {'/'.join(origin.scope)}" if origin.scope else ""
        source = f"{origin.source} in {origin.source.function}" if origin.source else "no user line"
        types = ", ".join(str(v.type) for v in node.inputs)
        results = ", ".join(str(v.type) for v in node.outputs)
        attrs = {k: v for k, v in node.attrs.items() if not isinstance(v, Graph)}
        return Divergence(stage, f"{node.op.name}({types}) {attrs or ''} : {results}", source + scope, kernel)


def _name(group: Group) -> str:
    names = dict.fromkeys(n.op.name for n in group.nodes)
    return "+".join(names)
