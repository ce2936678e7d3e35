"""The result of a comparison, as data and as text."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base.errors import Source
from tracecomp.base.html import preformatted
from tracecomp.compiled.differences import Difference, worst
from tracecomp.inspect.archive import write_archive
from tracecomp.inspect.calls import Calls
from tracecomp.ir.graph import Graph, Node, Origin

Array = np.ndarray[Any, Any]


WHOLE = "the whole"
"""The source of a divergence that no one node shows."""


@dataclass(frozen=True)
class StageResult:
    """Distances of the outputs of one stage from those of the previous stage."""

    name: str
    differences: list[Difference | None]

    @property
    def worst(self) -> Difference:
        return worst([d for d in self.differences if d is not None])


@dataclass(frozen=True)
class Divergence:
    """Location of a fault: the stage, the first diverging node as text, the user's line, the lowering step.

    ``phase`` is forward, backward or optimizer; ``values`` are numbers around the worst element; ``call`` is the wrong
    call, if it is not the first.
    """

    stage: str
    node: str
    source: str
    kernel: str = ""
    step: str = ""
    scope: str = ""
    phase: str = ""
    values: str = ""
    call: str = ""

    def __str__(self) -> str:
        where = f" in kernel {self.kernel}" if self.kernel else ""
        lines = [f"stage {self.stage}", f"first diverging node{where}: {self.node}", f"  from {self.source}"]
        if self.scope:
            lines[-1] += f", scope {self.scope}"
        if self.phase:
            lines[-1] += f", {self.phase}"
        if self.call:
            lines.append(f"  in {self.call}")
        if self.step:
            lines.append(f"  wrong from lowering step {self.step} on")
        if self.values:
            lines.append(self.values)
        return "\n".join(lines)


@dataclass
class Comparison:
    """The result of ``compare``. ``print`` shows it; ``ok`` is whether everything agrees.

    ``notes`` are findings that are not errors of the library; ``checked_derivatives`` counts steps of backward passes.
    ``at_fault`` is the wrong graph, with its arrays.
    """

    name: str
    outputs: list[str] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    native: list[Difference] = field(default_factory=list)
    kernels: int = 0
    divergence: Divergence | None = None
    tolerance: float | None = None
    calls: Calls = field(default_factory=Calls)
    checked_derivatives: int = 0
    notes: list[str] = field(default_factory=list)
    at_fault: tuple[Graph, list[Array]] | None = None

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
        if self.checked_derivatives:
            lines.append(f"backward steps checked by finite differences: {self.checked_derivatives}")
        if self.calls.same:
            lines.append(f"calls compared: {self.calls.same} the same, {self.calls.changed} with something changed")
        lines += [f"note: {note}" for note in self.notes]
        agrees = f"everything agrees{', see the note' if self.notes else ''}"
        lines.append(agrees if self.ok else str(self.divergence or "outputs differ"))
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as dictionaries and lists for ``json``: distances as numbers, infinite ones as None."""
        stages = [
            {"name": s.name, "agrees": s.worst.agrees(self.tolerance), **_numbers(s.worst)} for s in self.stages
        ]  # fmt: skip
        return {
            "name": self.name, "ok": self.ok, "kernels": self.kernels, "notes": self.notes,
            "stages": stages, "native": dict(zip(self.outputs, map(_numbers, self.native), strict=False)),
            "checked_derivatives": self.checked_derivatives,
            "calls": {"same": self.calls.same, "changed": self.calls.changed},
            "divergence": None if self.divergence is None else asdict(self.divergence),
        }  # fmt: skip

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def save(self, path: str | Path, inputs: bool = False) -> None:
        """Write a zip file that reproduces the difference on another machine: report, graph, and a script of a few
        lines.

        ``inputs`` adds the arrays of the graph: the program's data, including its weights. Without them the script
        creates random ones. ValueError if no graph differs: a wrong recording, or a wrongly reused one, needs the
        program itself.
        """
        if self.at_fault is None:
            raise ValueError(f"{self.name}: no graph differs, so there is nothing to save")
        write_archive(path, str(self), *self.at_fault, inputs=inputs)

    def _mark(self, found: Difference) -> str:
        return "agrees " if found.agrees(self.tolerance) else "DIFFERS"


def _numbers(d: Difference) -> dict[str, float | None]:
    """A distance; JSON has no infinity."""
    values = {"ulp": d.ulp, "absolute": d.absolute, "relative": d.relative}
    return {name: float(x) if np.isfinite(x) else None for name, x in values.items()}


def at_node(
    graph: Graph, node: Node | None, stage: str, kernel: str = "", step: str = "", values: str = ""
) -> Divergence:
    """The divergence at a node of ``graph``."""
    if node is None:
        return Divergence(stage, "none: every part agrees, only the whole differs", WHOLE, kernel, step)
    origin = graph.origin[node]
    types = ", ".join(str(v.type) for v in node.inputs)
    results = ", ".join(str(v.type) for v in node.outputs)
    attrs = {k: v for k, v in node.attrs.items() if not isinstance(v, Graph)}
    text = f"{node.op.name}({types}) {attrs or ''} : {results}"
    return Divergence(
        stage, text, shown_source(origin.source), kernel, step, "/".join(origin.scope), phase_of(origin), values
    )


def shown_source(source: Source | None) -> str:
    """A line as ``file:line in function``."""
    return f"{source} in {source.function}" if source else "no user line"


def phase_of(origin: Origin) -> str:
    """forward, backward or optimizer."""
    if "backward" in origin.scope:
        return "backward"
    source = origin.source
    line = "" if source is None else linecache.getline(source.file, source.line)
    return "optimizer" if ".step(" in line else "forward"


def around_worst(have: Array, want: Array, others: Sequence[tuple[str, Array]] = ()) -> str:
    """The element that differs most, and its neighbours on the last axis, of both sides and of ``others``."""
    if have.shape != want.shape or not have.size:
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(have.astype(np.complex128) - want.astype(np.complex128))
    apart = np.where(np.isnan(apart), np.where(np.isnan(have) & np.isnan(want), 0, np.inf), apart)
    place = np.unravel_index(int(apart.argmax()), have.shape)
    last = int(place[-1]) if place else 0
    row: Any = (*place[:-1], slice(max(last - 2, 0), last + 3)) if place else ()
    lines = [f"  worst at {list(map(int, place))}, with its neighbours:"]
    for name, array in (("wrong", have), ("right", want), *others):
        if array.shape == have.shape:
            numbers = np.atleast_1d(array[row])
            lines.append(f"    {name:<8} " + " ".join(f"{x:.7g}" for x in numbers.tolist()))
    return "\n".join(lines)
