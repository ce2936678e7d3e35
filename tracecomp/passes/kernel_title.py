"""Titles of kernels in the words of the program: the module's path, the functions that it called, the user's lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracecomp.ir.graph import Graph, ModuleName, Node, Origin

if TYPE_CHECKING:  # loads the planner, which a process with stored programs does not need
    from tracecomp.passes.program.frame import Frame

SHOWN = 3
"""Functions, and lines of a common title, that a title names: more do not fit into a column of a report's table."""

_WRITTEN = {"contract": "matmul", "take": "index", "put": "index_add"}
"""Common names of operators, where the library's differ."""


@dataclass(frozen=True)
class KernelTitle:
    """The module, functions and lines of a kernel.

    ``path`` is the module, "" outside modules. ``functions`` are the functions and operators, in order. ``lines`` are
    ``file.py:3``.
    """

    path: str
    functions: tuple[str, ...]
    backward: bool
    lines: tuple[str, ...]

    @property
    def computed(self) -> str:
        """The functions, as a sum."""
        more = len(self.functions) - SHOWN
        return " + ".join(self.functions[:SHOWN]) + (f" + {more} more" if more > 0 else "")

    def __str__(self) -> str:
        phase = " backward" * self.backward
        text = f"{self.path}{phase}: {self.computed}" if self.path else f"{self.computed}{phase}"
        return ", ".join((text, *self.lines))


def title_of(nodes: Sequence[Node], graphs: Sequence[Graph]) -> KernelTitle:
    """Return the title of a kernel that computes ``nodes``, whose origins are in ``graphs``.

    The contraction gives module and phase, as elementwise neighbours join its kernel; without one, the first node.
    """
    if not nodes:
        return KernelTitle("", ("copy of results",), False, ())
    origins = [_origin(node, graphs) for node in nodes]
    main = next((n for n, node in enumerate(nodes) if node.op.name == "contract"), 0)
    backward = "backward" in origins[main].scope
    path, _ = _split(origins[main])
    # A forward kernel may also store factors of the gradient, which the title leaves out. In a backward kernel, nodes
    # after the main one use its gradient: an optimizer's update.
    own = [
        (node, o)
        for n, (node, o) in enumerate(zip(nodes, origins, strict=True))
        if ("backward" in o.scope) == backward or (backward and n > main)
    ]
    functions = dict.fromkeys(_split(o)[1] or _WRITTEN.get(node.op.name, node.op.name) for node, o in own)
    lines = sorted({(o.source.file, o.source.line) for _, o in own if o.source})
    return KernelTitle(path, tuple(functions), backward, tuple(f"{PurePath(f).name}:{n}" for f, n in lines))


def common_title(titles: Iterable[KernelTitle]) -> str:
    """Return one title for calls of one kernel: "*" replaces the parts of the paths that differ."""
    known = list(dict.fromkeys(titles))
    first, paths = known[0], [t.path.split(".") for t in known]
    if len({len(p) for p in paths}) == 1:
        path = ".".join(parts[0] if len({*parts}) == 1 else "*" for parts in zip(*paths, strict=True))
    else:
        path = f"{first.path or 'the program'} and others"
    functions = first.functions if len({t.functions for t in known}) == 1 else (*first.functions[:1], "...")
    lines = dict.fromkeys(line for t in known for line in t.lines)
    return str(KernelTitle(path, functions, first.backward, tuple(lines)[:SHOWN]))


def graphs_of(frame: Frame) -> list[Graph]:
    """Return the graphs of a frame and of those inside it, which have the origins of nodes."""
    return [frame.graph, *(g for bodies in frame.bodies.values() for b in bodies for g in graphs_of(b))]


def _origin(node: Node, graphs: Sequence[Graph]) -> Origin:
    return next((g.origin[node] for g in graphs if node in g.origin), Origin())


def _split(origin: Origin) -> tuple[str, str]:
    """The path of the module, without the class of the outermost one, and the function that it called."""
    modules = [s for s in origin.scope if isinstance(s, ModuleName)]
    functions = [s for s in origin.scope if not isinstance(s, ModuleName) and s != "backward"]
    return ".".join(modules[1:] or modules), functions[0] if functions else ""
