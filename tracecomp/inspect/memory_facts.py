"""The memory of a call: the plan, lifetimes of temporary values, and the measured memory of the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tracecomp.compiled.backends import Native
from tracecomp.inspect.facts import Block, MemoryFacts
from tracecomp.ir.graph import Value
from tracecomp.ir.program import call_steps
from tracecomp.passes.program.frame import Frame, Task
from tracecomp.passes.program.lower import lifetimes
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.malloc import return_unused
from tracecomp.runtime.threads import wanted

MEASURABLE = 1 << 20
"""Least bytes of a call whose measured memory is reported: the system counts pages, also those of the interpreter."""


def nothing() -> MemoryFacts:
    """The facts of a graph that is not compiled."""
    return MemoryFacts(0, 0, 0, 0, 0, 0, (), 0)


def of_frame(frame: Frame, backend: Native, measured: int | None = None) -> MemoryFacts:
    """The plan of a program, and the memory ``measured`` in addition to its results."""
    image, graph = backend.executable.image, frame.graph
    scratch = image.memory_bytes + image.thread_bytes * wanted(backend.threads) - frame.nbytes
    by_role = {
        role: sum(i.value.type.nbytes for i in graph.inputs if i.role == role)
        for role in ("argument", "state", "host", "room", "constant")
    }
    # An output that is written into an input takes no separate memory.
    results = [o for n, o in enumerate(graph.outputs) if n not in frame.aliases]
    names_of = {c.nodes: c.kernel.name for c in call_steps(backend.built.program.steps)}
    made_by: dict[Value, str] = {}
    for task in (*frame.prepacking, *frame.tasks):
        if isinstance(task, Task):
            names, maker = task.kernel.writes, names_of.get(task.nodes, task.kernel.name)
            pairs = zip(task.kernel.params, task.values, strict=True)
            made_by.update({v: maker for p, v in pairs if p.name in names})
    blocks = tuple(
        Block(frame.offsets[x.value], x.nbytes, x.first, x.last, made_by.get(x.value, "control"), str(x.value.type))
        for x in lifetimes(frame)
        if x.value in frame.offsets
    )
    written = sum(o.value.type.nbytes for o in results)
    if frame.nbytes + max(scratch, 0) + written < MEASURABLE:
        measured = None
    return MemoryFacts(
        arguments=by_role["argument"] + by_role["host"] + by_role["room"],
        state=by_role["state"],
        constants=by_role["constant"] + sum(c.nbytes for c in frame.constants),
        results=written,
        arena=frame.nbytes,
        scratch=max(scratch, 0),
        blocks=blocks,
        calls=len(frame.prepacking) + len(frame.tasks),
        measured=None if measured is None else measured + written,
    )


def measured_peak(ready: Callable[[], Callable[[], None]], executable: Executable) -> int | None:
    """Peak of additional memory of the process during a call in bytes, from Linux; None elsewhere.

    ``ready`` prepares a call with its inputs and results, which count as existing.
    """
    run = ready()
    executable.free_idle()
    return_unused()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
        before = _status("VmRSS")
        run()
        return max(_status("VmHWM") - before, 0)
    except (OSError, ValueError, StopIteration):
        return None


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
