"""Every operator record's loops, verified, and run by the bounds-checked interpreter, against machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.running import compile_graph, graph_of, run_built
from tests.ops.samples import samples_of
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.op import OPS, Op

EVERY = [pytest.param(op, id=op.name) for op in OPS.values() if op.kind != "external"]
SMALL = 160
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("op", EVERY)
def test_interpreted_loops_agree_with_machine_code(op: Op) -> None:
    ran = 0
    for case in samples_of(op):
        if sum(t.numel for t in case.types) > SMALL or ran == 6:
            continue
        ran += 1
        graph = graph_of(case)
        built, executable = compile_graph(graph)
        native = run_built(built, executable, graph, case.arrays)
        interpreted = [np.zeros(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
        given = iter([np.array(a, order="C") for a in case.arrays])
        inputs: list[Any] = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
        interpret_program(built.program, [*inputs, *built.constants], interpreted)
        for got, want in zip(native, interpreted, strict=True):
            bound = TOLERANCE.get(got.dtype.name, 0.0)
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound, err_msg=str(case))
    assert ran, f"no sample of {op.name} is small enough"
