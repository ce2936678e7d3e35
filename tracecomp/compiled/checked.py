"""Checked mode: every call of a compiled program is computed by the numpy interpreter too, and compared.

The program itself was compiled with the setting ``check``: its accesses are checked against bounds and lifetimes
(``codegen/kernels/checked.py``), and its memory is between guard pages (``runtime/guarded.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

import tracecomp.passes as passes
from tracecomp.base.errors import CheckError
from tracecomp.base.interrupts import uninterrupted
from tracecomp.compiled.differences import changed_in_the_last_place, difference
from tracecomp.compiled.graph_bisection import first_bad_node, run_native
from tracecomp.ir.arrays import in_parts
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.interpret import Interpreter
from tracecomp.passes.steps import Log

Array = np.ndarray[Any, Any]


CHANGES = 3
"""How often operands are changed in their last place, before a difference is more than what rounding brings."""


class Runs(Protocol):
    """A backend that runs a graph as machine code."""

    @property
    def frozen(self) -> Sequence[int]:
        """The inputs that calls need not check again."""

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays``."""


class Checked:
    """A graph as machine code, each result of which is compared with the interpreter's.

    CheckError names the first operator that differs; what the call was to update is then as it was before.
    """

    def __init__(self, graph: Graph, native: Runs, aliases: Mapping[int, int]) -> None:
        self.graph = graph
        self.native = native
        self.frozen = native.frozen
        self._aliases = aliases
        self._interpreter = Interpreter(graph)
        self._operands: dict[Node, tuple[Array, ...]] = {}
        self._seen: tuple[Any, list[bytes]] | None = None
        self.calls = 0
        self.first_nan = ""

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays`` twice. ``seen`` as in ``Native.run``, and not believed."""
        self.calls += 1
        self._believe(arrays, seen)
        given = [a.copy() for a in arrays]
        wanted = self._interpret(given)
        try:
            self.native.run(arrays, outputs, seen)
            uninterrupted.allow_in_loops(False)  # state is written
            self._compare(given, wanted, outputs)
        except CheckError:
            for a in self._aliases.values():
                np.copyto(arrays[a], given[a])
            raise

    @property
    def says(self) -> str:
        """How many calls agreed, and where NaN came from."""
        agreed = f"checked: {self.calls} calls agree with the interpreter"
        return f"{agreed}; first NaN: {self.first_nan}" if self.first_nan else agreed

    def _believe(self, arrays: Sequence[Array], seen: object) -> None:
        """CheckError if a frozen input has changed while its version has not."""
        if seen is None:
            return
        now = [arrays[n].tobytes() for n in self.frozen]
        if self._seen is not None and self._seen[0] == seen and self._seen[1] != now:
            raise CheckError(f"{self.graph.name}: state changed, but its version counter did not")
        self._seen = (seen, now)

    def _interpret(self, given: Sequence[Array]) -> list[Array]:
        values = dict(zip((i.value for i in self.graph.inputs if i.role != "constant"), given, strict=True))
        with_nan = {v for v, a in values.items() if _has_nan(a)}

        def watch(node: Node, results: tuple[Array, ...]) -> None:
            found = [v for v, a in zip(node.outputs, results, strict=True) if _has_nan(a)]
            if found and not self.first_nan and with_nan.isdisjoint(node.inputs):
                self.first_nan = f"{self._named(node)}, in call {self.calls}"
            with_nan.update(found)

        return self._interpreter.run(given, watch)

    def _compare(self, given: list[Array], wanted: Sequence[Array], outputs: Sequence[Array]) -> None:
        bad = [n for n, (have, want) in enumerate(zip(outputs, wanted, strict=True)) if not _agree(have, want)]
        for seed in range(CHANGES):
            if not bad:
                return
            moved = self._interpreter.run(changed_in_the_last_place(given, seed))
            bad = [n for n in bad if not _agree(outputs[n], wanted[n], moved[n])]
        if bad:
            output = self.graph.outputs[bad[0]]
            found = difference(in_parts(outputs[bad[0]]), in_parts(wanted[bad[0]]))
            node = self._first_bad(given) or output.value.node
            where = f"; first in {self._named(node)}" if node else ""
            raise CheckError(f"{self.graph.name}: {output.role} {output.name} differs by {found}{where}")

    def _first_bad(self, given: list[Array]) -> Node | None:
        graph = passes.split_complex(self.graph, Log())
        return first_bad_node(graph, [*map(in_parts, given)], run_native, None)

    def _named(self, node: Node) -> str:
        origin = self.graph.origin.get(node)
        return f"{node.op.name} ({origin.source})" if origin and origin.source else node.op.name


def _has_nan(array: Array) -> bool:
    return array.dtype.kind in "fcV" and bool(np.isnan(array).any())


def _agree(have: Array, want: Array, moved: Array | None = None) -> bool:
    """Whether two results agree; elements that rounding of the operands changes, too, are whatever they are."""
    have, want = in_parts(have), in_parts(want)
    moved = None if moved is None else in_parts(moved)
    if moved is not None and want.dtype.kind in "biu":
        have = np.where(moved != want, want, have)
    return difference(have, want, moved).agrees()
