"""The graph passes: order, skipping, stopping, dumps, verification, failures and their reproductions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.passes.cases import Case
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError, Source
from tracecomp.ir.graph import Graph, Origin
from tracecomp.ir.interpret import interpret
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.types import TensorType, float32
from tracecomp.passes import pipeline, reproduction
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, rewrite
from tracecomp.passes.pipeline import PIPELINE
from tracecomp.passes.steps import Log, Stage, Step

SMALL = Case("", "x:f32[3]", "%0 = neg(%x) : f32[3]\n%1 = neg(%0) : f32[3]\n%2 = mul(%1, 3.0:f32) : f32[3]", "")


def small() -> Graph:
    return SMALL.graph(SMALL.before)


def names(stages: list[Stage[Graph]]) -> list[str]:
    return [s.name for s in stages]


def test_runs_every_pass_in_order() -> None:
    stages = pipeline.run(small(), Dump("t"))
    assert names(stages) == ["recorded", *(p.name for p in PIPELINE)]
    assert [n.op.name for n in stages[-1].state.live_nodes()] == ["full", "mul"]
    assert stages[names(stages).index("simplify")].log.hits["involution"] == 1


def test_skip_and_stop_after() -> None:
    with config.override(skip_passes=("simplify",), stop_after=3):
        stages = pipeline.run(small(), Dump("t"))
    assert names(stages) == ["recorded", *(p.name for p in PIPELINE[:3] if p.name != "simplify")]


def test_unknown_pass_to_skip() -> None:
    with config.override(skip_passes=("simplfy",)), pytest.raises(ValueError, match="no pass called simplfy"):
        pipeline.run(small(), Dump("t"))


def test_dump_has_stable_names_and_reads_back(tmp_path: Path) -> None:
    with config.override(dump=str(tmp_path)):
        for _ in range(2):
            pipeline.run(small(), Dump("t"))
    files = sorted(p.name for p in (tmp_path / "t").iterdir())
    assert files == [f"{n:02d}_{name}.ir" for n, name in enumerate(["recorded", *(p.name for p in PIPELINE)], 1)]
    assert (tmp_path / "t.2").is_dir()
    x = np.array([1.0, -2.0, 0.5], np.float32)
    for file in (tmp_path / "t").iterdir():
        [result] = interpret(parse_graph(file.read_text()), [x])
        np.testing.assert_array_equal(result, x * 3)


def failing(graph: Graph, log: Log) -> Graph:
    raise KeyError("lost")


def test_failure_names_the_pass_and_writes_a_reproduction(tmp_path: Path) -> None:
    with config.override(dump=str(tmp_path)), pytest.raises(CompileError, match="pass broken failed on graph case"):
        pipeline.run(small(), Dump("t"), (Step("broken", failing, ""),))
    script = (tmp_path / "tracecomp_reproduce_broken.py").read_text()
    assert "neg" in script and "broken" in script


def test_failure_of_a_rule_names_the_users_line(tmp_path: Path) -> None:
    def broken(g: Rewriter, a: Application) -> Replacement:
        raise KeyError("lost")

    rules = Rules()
    rules.on("neg")(broken)
    graph = Graph("case")
    x = graph.add_input(TensorType(float32, (3,)), "x")
    graph.here = Origin(Source("/home/me/model.py", 12, "forward"))
    graph.add_output(graph.apply("neg", x))
    step = Step("rules", lambda g, log: rewrite(g, rules, log, "rules"), "")
    with config.override(dump=str(tmp_path)), pytest.raises(CompileError, match=r"in rule broken of neg \(at /home/me"):
        pipeline.run(graph, Dump("t"), (step,))


def test_reproduction_runs_on_its_own(tmp_path: Path) -> None:
    with config.override(dump=str(tmp_path)):
        path = reproduction.write("complex_to_real", reproduction.of_pass("complex_to_real", small()))
    paths = {**os.environ, "PYTHONPATH": str(Path(pipeline.__file__).parents[2])}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, env=paths)
    assert done.returncode == 0, done.stderr


def wrong_type(graph: Graph, log: Log) -> Graph:
    new = Graph(graph.name)
    x = new.add_input(graph.inputs[0].value.type, "x")
    new.add_output(new.apply("neg", x))
    new.nodes[0].outputs[0].type = new.apply("cast", x, dtype=graph.outputs[0].value.dtype).type.__class__(
        graph.outputs[0].value.dtype, (7,)
    )
    return new


def test_verification_after_each_pass() -> None:
    with config.override(verify=True), pytest.raises(CompileError, match="pass lies failed"):
        pipeline.run(small(), Dump("t"), (Step("lies", wrong_type, ""),))


def test_a_reproduction_lies_where_nobody_else_can_write() -> None:
    first, second = (reproduction.write("broken", "pass") for _ in range(2))
    assert first != second
    for path in (first, second):
        assert path.parent.stat().st_mode & 0o777 == 0o700
        shutil.rmtree(path.parent)
