"""Which variable becomes lanes: that along which memory is read and written, even where vectors are not filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tracecomp
from tracecomp.ir.index import Var
from tracecomp.ir.loops import Loop, Stmt, Store
from tracecomp.ir.program import CallStep
from tracecomp.passes import build


def strides(body: Sequence[Stmt], lanes: Var | None = None) -> Iterator[int | None]:
    """How far apart lanes store."""
    for stmt in body:
        if isinstance(stmt, Store) and lanes is not None:
            yield stmt.offset.coefficient(lanes)
        if isinstance(stmt, Loop):
            yield from strides(stmt.body, stmt.var if stmt.kind == "vector" else lanes)


def stored(function: Callable[..., Any], *shapes: tuple[int, ...]) -> set[int | None]:
    graph = tracecomp.trace(function, *(tracecomp.ones(*shape) for shape in shapes))
    steps = build(graph).program.steps
    return {s for step in steps if isinstance(step, CallStep) for s in strides(step.kernel.body)}


def test_lanes_run_along_what_is_stored() -> None:
    channels = (64, 1, 1)
    assert stored(lambda x, a, b, c: (x - a) * b + c, (8, 64, 7, 7), channels, channels, channels) == {1}
    assert stored(lambda x, y: x * y, (5000, 3), (5000, 1)) == {1}
