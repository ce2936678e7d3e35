"""Which variable becomes lanes: that along which memory is read and written, even where vectors are not filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tracecomp
from tests.machines import MACHINES
from tracecomp import nn
from tracecomp.ir.index import Var
from tracecomp.ir.loops import Accumulate, Load, Loop, Stmt, Store, expressions, walk
from tracecomp.ir.program import CallStep
from tracecomp.passes.building import build


def strides(kind: type[Store | Load], body: Sequence[Stmt], lanes: Var | None = None) -> Iterator[int | None]:
    """How far apart lanes store or load; None where that is not the same for all neighbours."""
    for stmt in body:
        if lanes is not None:
            accesses = (stmt, *expressions((stmt,)))
            yield from (x.offset.coefficient(lanes) for x in accesses if isinstance(x, kind))
        if isinstance(stmt, Loop | Accumulate):
            vector = isinstance(stmt, Loop) and stmt.kind == "vector"
            yield from strides(kind, stmt.body, stmt.var if vector else lanes)


def found(kind: type[Store | Load], function: Callable[..., Any], *shapes: tuple[int, ...]) -> set[int | None]:
    graph = tracecomp.trace(function, *(tracecomp.ones(*shape) for shape in shapes))
    steps = build(graph, machine=MACHINES["Zen 4"]).program.steps
    return {s for step in steps if isinstance(step, CallStep) for s in strides(kind, step.kernel.body)}


def test_lanes_run_along_what_is_stored() -> None:
    channels = (64, 1, 1)
    assert found(Store, lambda x, a, b, c: (x - a) * b + c, (8, 64, 7, 7), channels, channels, channels) == {1}
    assert found(Store, lambda x, y: x * y, (5000, 3), (5000, 1)) == {1}


def test_rows_of_several_channels_take_one_after_the_other_once_nothing_is_summed() -> None:
    def normalized(x: Any, weight: Any, bias: Any) -> Any:
        return nn.functional.group_norm(x, 2, weight, bias)

    assert found(Load, normalized, (3, 6, 7, 7), (6,), (6,)) == {0, 1}
    assert None in found(Load, normalized, (3, 6, 2, 2), (6,), (6,))  # shorter than a vector


def test_taken_slices_of_several_axes_are_one_run() -> None:
    graph = tracecomp.trace(lambda x, at: x.index_select(0, at), tracecomp.ones(50, 13, 2), tracecomp.arange(20))
    steps = build(graph, machine=MACHINES["Zen 4"]).program.steps
    (kernel,) = [step.kernel for step in steps if isinstance(step, CallStep)]
    assert [loop.var.extent for loop in walk(kernel.body) if isinstance(loop, Loop)] == [20, 26]
