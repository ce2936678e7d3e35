"""Comparison of one graph in every form from graph to native code, and the first neighbours that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.compiled.differences import Difference, changed_in_the_last_place, differ_often, difference, worst
from tracecomp.compiled.graph_bisection import (
    NativeProgram,
    after_pass,
    after_split,
    every_value,
    first_bad_node,
    first_bad_step,
    part_of,
    run_native,
)
from tracecomp.inspect.comparison import Comparison, Divergence, StageResult, around_worst, at_node
from tracecomp.inspect.eager_check import FUNCTION_ULP, FUNCTIONS, last_places
from tracecomp.inspect.graph_runs import GraphRun, rounds_alike, run_as_calls_do, run_eagerly, run_unfused
from tracecomp.inspect.wide import wide_array, witness
from tracecomp.ir.arrays import in_parts, same_bits
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.scalars import SCALARS
from tracecomp.passes import pipeline
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.graph.host_segments import has_external, segments
from tracecomp.passes.pipeline import PIPELINE, lower
from tracecomp.passes.steps import Stage, Step

Array = np.ndarray[Any, Any]
Report = Callable[[str], None]

KERNEL_TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-12}
"""Agreement of one kernel with the interpreter on the same operands, relative to the largest element."""

CHANGES = 3
"""Perturbations of operands in their last place that estimate the effect of rounding."""

AS_FAR = 4.0
"""Largest ratio of a kernel's distance from float64 to that of the interpreter."""

MOST_UNFUSED = 600
"""Most nodes of a graph that is also compiled without optional lowering steps."""


class GraphComparison:
    """Compare the stages of one graph; ``part`` is a prefix of their names. ``loops``: also the loop interpreter."""

    def __init__(self, result: Comparison, run: GraphRun, report: Report, part: str = "", loops: bool = False) -> None:
        self.result = result
        self.run_of = run
        self.arrays = [*map(in_parts, run.arrays)]
        self.report: Report = lambda line: report(part + line)
        self.part = part
        self.loops = loops
        self.moved: list[list[Array]] = []
        self.exact: list[Array] | None = None

    def run(self) -> None:
        """Compare up to the first stage that differs; every step's result is verified."""
        with config.override(verify=True):
            self._run()

    def _run(self) -> None:
        result = self.result
        graph = self.run_of.graph
        self.report("interpreting the recorded graph")
        recorded = [*map(in_parts, interpret(graph, self.run_of.arrays))]
        self.report("running the passes")
        try:
            stages = pipeline.run(graph, Dump("", enabled=False))
        except CompileError as error:
            result.at_fault = graph, self.run_of.arrays
            self._refused_pass(graph, error)
            return
        split = stages[1].state
        result.outputs += [f"{self.part}{o.role} {o.name} {o.value.type}" for o in split.outputs]
        moved = (changed_in_the_last_place(self.run_of.arrays, seed) for seed in range(CHANGES))
        self.moved = [[*map(in_parts, interpret(graph, arrays))] for arrays in moved]
        result.at_fault = split, self.arrays
        if self._passes(stages, recorded):
            self._lowered(stages[-1].state, recorded)
        if result.ok:
            result.at_fault = None

    def _lowered(self, graph: Graph, recorded: list[Array]) -> None:
        try:
            if self._kernels(graph) and self._functions(graph):
                self._native(graph, recorded)
        except CompileError as error:
            node = first_bad_node(graph, self.arrays, run_native, None)
            self._blame(graph, node, "native", step=error.step or "codegen")
            self._explain(error)

    def _refused_pass(self, graph: Graph, error: CompileError) -> None:
        """Find the node because of which a pass fails, or its result does not verify."""
        number = [p.name for p in PIPELINE].index(error.step)
        with config.override(stop_after=number):
            before = pipeline.run(graph, Dump("", enabled=False))[-1].state
        node = self._node_of_pass(before, PIPELINE[number], None)
        self._blame(before, node, error.step)
        self._explain(error)

    def _explain(self, error: CompileError) -> None:
        assert self.result.divergence is not None
        self.result.divergence = replace(self.result.divergence, values=f"  {error}")

    def _differences(self, found: list[Array], recorded: list[Array]) -> list[Difference]:
        return [self._judged(n, f, r) for n, (f, r) in enumerate(zip(found, recorded, strict=True))]

    def _judged(self, number: int, found: Array, recorded: Array) -> Difference:
        """The difference of an output; if it exceeds the tolerance, the witness in float64 decides which side is
        wrong."""
        here = min((difference(found, recorded, m[number]) for m in self.moved), key=lambda d: d.relative)
        if here.agrees(self.result.tolerance) or found.dtype.kind != "f" or not np.isfinite(here.relative):
            return here
        if self.exact is None:
            self.exact = witness(self.run_of.graph, self.run_of.arrays) or []
        if number >= len(self.exact) or self.exact[number].shape != found.shape:
            return here
        with np.errstate(all="ignore"):
            errors = [float(np.abs(wide_array(a) - self.exact[number]).max()) for a in (found, recorded)]
        if not np.isfinite(errors).all() or errors[0] > errors[1]:
            return here
        self.result.notes.append(
            f"{self.part}output {number}: compiled is closer to float64 than eager, "
            f"{errors[0]:.3g} against {errors[1]:.3g}"
        )
        return replace(here, nearer=True)

    def _agree(self, name: str, differences: Sequence[Difference | None]) -> bool:
        self.result.stages.append(StageResult(self.part + name, list(differences)))
        return all(d is None or d.agrees(self.result.tolerance) for d in differences)

    def _passes(self, stages: list[Stage[Graph]], recorded: list[Array]) -> bool:
        """Interpret after each pass; if the outputs change, find the node."""
        for before, after in pairwise(stages):
            self.report(f"interpreting after {after.name}")
            found = interpret(after.state, self.arrays)
            if not self._agree(after.name, self._differences(found, recorded)):
                [step] = [p for p in PIPELINE if p.name == after.name]
                self.report(f"locating the node that {after.name} miscompiles")
                node = self._node_of_pass(before.state, step, self.result.tolerance)
                self._blame(before.state, node, after.name, found=found, wanted=recorded)
                return False
        return True

    def _node_of_pass(self, before: Graph, step: Step[Graph], tolerance: float | None) -> Node | None:
        """The first node that a pass computes wrongly; the first one still has complex numbers."""
        if step is PIPELINE[0]:
            return first_bad_node(before, self.run_of.arrays, after_split, tolerance, zeros=True)
        return first_bad_node(before, self.arrays, after_pass(step), tolerance, zeros=True)

    # ---- kernels

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
            part, given = part_of(graph, graph.name, partition.stored[group], cut)
            operands = [np.asarray(values[v], order="C") for v in given]
            wanted = [values[v] for v in partition.stored[group]]
            exact = all(map(rounds_alike, group.nodes)) and not config.current().fast_math
            here, found = self._kernel(part, operands, wanted, exact)
            differences += here
            often = any(map(differ_often, found, wanted))
            if often or not all(d.agrees(0.0 if exact else KERNEL_TOLERANCE.get(d.dtype)) for d in here):
                self.result.stages.append(StageResult(self.part + "kernels", differences))
                tolerance = 0.0 if often else KERNEL_TOLERANCE.get(worst(here).dtype)
                node = first_bad_node(part, operands, run_native, tolerance)
                step = self._kernel_step(part, operands, node, tolerance)
                self._blame(part, node, "kernels", _name(group), step, found, wanted)
                return False
        return self._agree("kernels", differences)

    def _kernel(
        self, part: Graph, operands: list[Array], wanted: list[Array], exact: bool
    ) -> tuple[list[Difference], list[Array]]:
        """Compare one kernel on its operands in the program: return differences, and its results.

        ``exact``: both round alike, operator by operator, so there is no tolerance.
        """
        found = run_native(part, operands)
        here = [difference(f, w) for f, w in zip(found, wanted, strict=True)]
        if exact:
            return here, found
        for seed in range(CHANGES):
            if all(d.agrees(KERNEL_TOLERANCE.get(d.dtype)) for d in here):
                break
            moved = interpret(part, changed_in_the_last_place(operands, seed))
            again = [difference(f, w, m) for f, w, m in zip(found, wanted, moved, strict=True)]
            here = [min(a, b, key=lambda d: d.relative) for a, b in zip(here, again, strict=True)]
        else:
            wide = witness(part, operands)
            if wide is not None:
                here = [self._by_witness(d, *x) for d, *x in zip(here, found, wanted, wide, strict=True)]
        return here, found

    @staticmethod
    def _by_witness(here: Difference, found: Array, wanted: Array, exact: Array) -> Difference:
        """The difference of a kernel's result, which may be as far from float64 as the interpreter's."""
        if found.dtype.kind != "f" or exact.shape != found.shape:
            return here
        with np.errstate(all="ignore"):
            errors = [float(np.abs(wide_array(a) - exact).max(initial=0.0)) for a in (found, wanted)]
        return replace(here, nearer=bool(np.isfinite(errors).all() and errors[0] <= AS_FAR * errors[1]))

    def _kernel_step(self, part: Graph, operands: list[Array], node: Node | None, tolerance: float | None) -> str:
        """Locate the error of a kernel: its loops, or its machine code."""
        try:
            by_loops = NativeProgram(part).interpret_loops(operands)
            native = run_native(part, operands)
        except Exception as error:  # a wrong kernel's loops may fail in any way, which is the finding
            return f"kernels (its loops: {error})"
        if all(difference(a, b).agrees(tolerance) for a, b in zip(native, by_loops, strict=True)):
            return first_bad_step(lambda: not _right(part, operands, tolerance)) or "kernels (its loops)"
        if node is not None and node.op.name in SCALARS and node.op.name in _MATH:
            return f"codegen (the function {node.op.name})"
        return "codegen"

    def _functions(self, graph: Graph) -> bool:
        """Compare every math function of the graph alone with float64: in units in the last place of each result."""
        values = every_value(graph, self.arrays)
        known: set[tuple[str, Any]] = set()
        for node in graph.live_nodes():
            key = node.op.name, node.outputs[0].dtype
            if key[0] not in FUNCTIONS or key[1].name not in ("float32", "float64") or key in known:
                continue
            known.add(key)
            part, given = part_of(graph, graph.name, node.outputs, set(values))
            plain = [np.asarray(values[v], order="C") for v in given]
            for scale in (1.0, 2.0**-10):  # errors near 0 need operands near 0
                operands = [np.asarray(a * scale, a.dtype) for a in plain]
                exact = witness(part, operands)
                if exact is None:
                    break
                with np.errstate(over="ignore"):
                    [found], wanted = run_native(part, operands), exact[0].astype(key[1].numpy)
                if last_places(found, wanted) <= FUNCTION_ULP:
                    continue
                self._agree("functions", [difference(found, wanted)])
                step = f"codegen (the function {node.op.name})"
                self._blame(graph, node, "functions", "", step, [found], [wanted])
                return False
        return True

    # ---- the whole program

    def _native(self, graph: Graph, recorded: list[Array]) -> None:
        self.report("running native code")
        if has_external(graph):
            self._check_native(
                graph, recorded, run_as_calls_do(graph, self.arrays), lambda: run_as_calls_do(graph, self.arrays)
            )
            return
        steady, aliases = self.run_of.steady, self.run_of.aliases
        program = NativeProgram(graph, aliases, steady)
        found = program.run(self.arrays, 1, "the same")

        def again() -> list[Array]:
            return NativeProgram(graph, aliases, steady).run(self.arrays, 1, "the same")

        if self._check_native(graph, recorded, found, again) and self._eager_bits(graph, found):
            self._variants(graph, program, found)

    def _check_native(
        self, graph: Graph, recorded: list[Array], found: list[Array], again: Callable[[], list[Array]]
    ) -> bool:
        differences = self._differences(found, recorded)
        self.result.native += differences
        if self._agree("native", differences):
            return True
        node = first_bad_node(graph, self.arrays, run_as_calls_do, self.result.tolerance)
        self.report("locating the lowering step at fault")
        step = first_bad_step(
            lambda: not all(d.agrees(self.result.tolerance) for d in self._differences(again(), recorded))
        )
        self._blame(graph, node, "native", "", step, found, recorded)
        return False

    def _eager_bits(self, graph: Graph, found: list[Array]) -> bool:
        """Compare the bits with those of the recorded graph's operators, run one by one as in eager mode."""
        self.report("running the operators eagerly")
        eager = run_eagerly(self.run_of.graph, self.run_of.arrays)
        if config.current().fast_math or self.run_of.steady or all(map(same_bits, found, eager)):
            return self._agree("eager bits", [difference(f, f) for f in found])
        recorded = self.run_of.graph
        node = first_bad_node(recorded, self.run_of.arrays, run_eagerly, self.result.tolerance)
        if node is not None:  # numpy says that eager mode is wrong, and compiled code is not
            self._different_bits("eager", recorded, node, "eager programs", eager, found)
        else:
            node = first_bad_node(graph, self.arrays, run_native, None, run_eagerly)
            self._different_bits("eager bits", graph, node, "", found, eager)
        return False

    def _variants(self, graph: Graph, program: NativeProgram, found: list[Array]) -> None:
        """Compare variants with the same bits: a second call, two threads, and the program without optional steps."""
        second = program.run(self.arrays, 1, "the same")
        if not self._same("second call", second, found, "prepacking"):
            return
        if program.executable.image.parallel and not self._same("two threads", program.run(self.arrays, 2), found):
            return
        if self.loops:
            self.report("interpreting the loops")
            by_loops = program.interpret_loops(self.arrays)
            if not self._agree("loops", self._differences(by_loops, found)):
                self._blame(graph, None, "loops", "", "codegen", found, by_loops)
                return
        if len(graph.nodes) > MOST_UNFUSED:
            self.result.notes.append(f"{self.part}graph has {len(graph.nodes)} nodes: not compiled without fusion")
            return
        self._without_fusion(graph, found)

    def _without_fusion(self, graph: Graph, found: list[Array]) -> None:
        self.report("compiling without fusion")
        aliases, steady = self.run_of.aliases, self.run_of.steady
        unfused = run_unfused(graph, self.arrays, steady)
        if all(map(same_bits, unfused, found)):
            self._agree("without fusion", [difference(f, f) for f in found])
            return

        def differs() -> bool:
            fused = NativeProgram(graph, aliases, steady).run(self.arrays, 1)
            return not all(map(same_bits, fused, run_unfused(graph, self.arrays, steady)))

        node = first_bad_node(graph, self.arrays, run_native, None, run_unfused)
        self._different_bits("without fusion", graph, node, first_bad_step(differs), unfused, found)

    def _same(self, name: str, have: list[Array], want: list[Array], step: str = "") -> bool:
        if all(map(same_bits, have, want)):
            return self._agree(name, [difference(h, h) for h in have])
        self._different_bits(name, self.run_of.graph, None, step, have, want)
        return False

    def _different_bits(
        self, name: str, graph: Graph, node: Node | None, step: str, have: list[Array], want: list[Array]
    ) -> None:
        self.result.stages.append(StageResult(self.part + name, [*map(difference, have, want)]))
        self._blame(graph, node, name, "", step, have, want)

    def _blame(
        self, graph: Graph, node: Node | None, stage: str, kernel: str = "", step: str = "",
        found: Sequence[Array] = (), wanted: Sequence[Array] = (),
    ) -> None:  # fmt: skip
        values = ""
        if node is None and len(found) == len(graph.outputs):
            wrong = [o.value for o, a, b in zip(graph.outputs, found, wanted, strict=True) if not same_bits(a, b)]
            nodes = {v.node for v in wrong}
            node = next((n for n in graph.nodes if n in nodes), None)
        for n, (have, want) in enumerate(zip(found, wanted, strict=False)):
            if not same_bits(have, want):
                exact = [("float64", self.exact[n])] if self.exact and n < len(self.exact) and not kernel else []
                values = around_worst(have, want, exact)
                break
        self.result.divergence = at_node(graph, node, self.part + stage, kernel, step, values)


_MATH = frozenset(name for name, s in SCALARS.items() if name not in ("add", "sub", "mul", "div", "select"))


def _right(part: Graph, operands: list[Array], tolerance: float | None) -> bool:
    wanted = interpret(part, operands)
    return all(difference(f, w).agrees(tolerance) for f, w in zip(run_native(part, operands), wanted, strict=True))


def _name(group: Group) -> str:
    names = dict.fromkeys(n.op.name for n in group.nodes)
    return "+".join(names)


__all__ = ["KERNEL_TOLERANCE", "Divergence", "GraphComparison"]
