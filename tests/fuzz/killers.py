"""Checks that kill mutants, of some milliseconds to seconds, and which lines of the package each of them runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import coverage
import numpy as np

import tracecomp
from tests.codegen.math import test_math
from tests.fuzz import equal_graphs, loop_programs, panels, turned
from tests.ops import test_native
from tests.passes.random_graphs import Maker
from tests.replay import corpus, digests
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.compiled.graph_bisection import run_native
from tracecomp.ir.interpret import interpret
from tracecomp.ir.op import OPS
from tracecomp.ir.types import float32, float64
from tracecomp.passes import pipeline

PACKAGE = Path(tracecomp.__file__).parent
ROOMS = ("passes", "codegen/kernels", "codegen/math")
Line = tuple[str, int]


@dataclass(frozen=True)
class Killer:
    """A check, which fails by any exception, or by a different answer than the first. ``kind``: the part that it
    checks."""

    kind: str
    name: str
    check: Callable[[], Any]


@dataclass(frozen=True)
class Reach:
    """A check's answer, its time, and the lines that it ran."""

    answer: Any
    seconds: float
    lines: frozenset[Line]


def killers(every: int = 1) -> list[Killer]:
    """All recorded graphs as programs, and the nets' first seeds and all operators, or each ``every``-th of these."""
    programs = [Killer("program", g.name, partial(digests.of, g, bits=False)) for g in corpus.load()]
    nets: dict[str, Callable[[int], None]] = {
        "exact graph": _exact,
        "equal graphs": lambda seed: _none(equal_graphs.difference, seed, 7),
        "loop program": lambda seed: _none(loop_programs.difference, seed),
        "panels": lambda seed: _none(panels.difference, seed),
        "turned": lambda seed: _none(turned.difference, seed),
    }
    results = [Killer("result", f"{name} {seed}", partial(net, seed)) for name, net in nets.items()
               for seed in range(120)]  # fmt: skip
    operators = [op for op in OPS.values() if op.kind != "external"]
    results += [Killer("result", f"operator {op.name}", partial(_operator, op)) for op in operators]
    kinds = (float32, float64)
    results += [Killer("result", f"function {op} {t}", partial(test_math.test_unary_within_bound, op, t))
                for op in test_math.REFERENCE for t in kinds]  # fmt: skip
    results += [Killer("result", f"function {op} {t}", partial(test_math.test_binary_within_bound, op, t))
                for op in test_math.BINARY for t in kinds]  # fmt: skip
    return programs + results[::every]


def _exact(seed: int) -> None:
    """Every pass and the native code keep a random graph whose arithmetic is exact."""
    graph, arrays = Maker(seed).make(2 + seed % 12)
    want = interpret(graph, arrays)
    with config.override(verify=True):
        stages = pipeline.run(graph, Dump("t", enabled=False))
    for stage in stages[1:]:
        for have, expected in zip(interpret(stage.state, arrays), want, strict=True):
            np.testing.assert_array_equal(have, expected)
    for have, expected in zip(run_native(stages[-1].state, arrays), want, strict=True):
        np.testing.assert_array_equal(have, expected)


def _none(net: Callable[..., str | None], *args: int) -> None:
    assert net(*args) is None


def _operator(op: object) -> None:
    test_native.test_native_agrees_with_numpy_for_any_fusion_and_threads(op)  # type: ignore[arg-type]


def reaches(checks: Sequence[Killer]) -> list[Reach]:
    """Return the lines of the rooms that every check runs; it must pass. It starts threads, so a process that forks
    later must not call it."""
    rooms = [str(PACKAGE / room / "*") for room in ROOMS]
    measure = coverage.Coverage(data_file=None, include=rooms, config_file=False)
    found = []
    for killer in checks:
        measure.erase()
        start = time.perf_counter()
        measure.start()
        try:
            answer = killer.check()
        finally:
            measure.stop()
        seconds = time.perf_counter() - start
        data = measure.get_data()
        lines = frozenset((f, n) for f in data.measured_files() for n in data.lines(f) or ())
        found.append(Reach(answer, seconds, lines))
    return found
