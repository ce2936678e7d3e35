"""The lowering steps: order, records, skipping, stopping, text that reads back, verification, failures."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.faults.planting import code_of, find
from tests.passes.row_fusion.test_search import SMALL, arrays, optimised, outputs
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.inspect import explain
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.loop_printer import print_program
from tracecomp.nn import functional
from tracecomp.passes import pipeline
from tracecomp.passes.building import build, lower
from tracecomp.passes.pipeline import LOWERING, PIPELINE, Lowered, resumed
from tracecomp.passes.program.frame import Frame
from tracecomp.passes.program.frame_text import parse_frame, print_frame
from tracecomp.passes.program.frame_verify import verify_frame
from tracecomp.passes.steps import Log, Step
from tracecomp.runtime.executable import Executable

NAMES = [s.name for s in LOWERING]
OPTIONAL = [s.name for s in LOWERING if not s.needed]


def attention() -> Graph:
    """Row fusion has something to do."""
    fn = functional.scaled_dot_product_attention
    return optimised(lambda q, k, v: fn(q, k, v, is_causal=True), *(torch.randn(2, 4, 20, 8) for _ in range(3)))


def padded() -> Graph:
    """Implicit padding has."""
    x, w = torch.randn(1, 16, 9, 9), torch.randn(16, 1, 3, 3)
    return optimised(lambda x, w: functional.conv2d(x, w, padding=1, groups=16), x, w)


def joined() -> Graph:
    """Concat in place has."""
    x, v, w = torch.randn(40, 24), torch.randn(24, 32), torch.randn(24, 48)
    return optimised(lambda x, v, w: torch.cat([x @ v, torch.relu(x @ w)], 1), x, v, w)


def looped() -> Graph:
    """Control operators have bodies, which are frames."""

    def fn(x: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = torch.tanh(h * 0.5 + x)
            return h, torch.cond(h.sum() > 0, lambda h: h + 1, lambda h: h * h.sum(), (h,))

        return torch.scan(cell, torch.zeros(5), x)

    return optimised(fn, torch.randn(7, 5))


GRAPHS: dict[str, Callable[[], Graph]] = {f.__name__: f for f in (attention, padded, joined, looped)}


def run(lowered: Lowered) -> list[bytes]:
    graph = lowered.frame.graph
    found = outputs(graph)
    Executable(lowered.program).run([*arrays(graph), *map(np.ascontiguousarray, lowered.constants)], found)
    return [a.tobytes() for a in found]


def plain(text: str) -> list[str]:
    """The lines of a frame's text without comments."""
    lines = (line.split("  #")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    torch.manual_seed(0)
    return GRAPHS[request.param]()


def test_every_step_leaves_a_record_with_its_time() -> None:
    stages = lower(attention(), machine=SMALL).stages
    assert [s.name for s in stages] == ["lowering", *NAMES]
    assert all(s.seconds > 0 for s in stages[1:])
    found = {s.name: s.log.hits for s in stages}
    assert found["row_fusion"]["loops over blocks of rows"] == 1
    assert lower(padded(), machine=SMALL).stages[2].log.hits["pads"] == 1
    assert lower(joined(), machine=SMALL).stages[3].log.hits["parts"] == 2


@pytest.mark.sampled(6)
@pytest.mark.parametrize("skipped", OPTIONAL)
def test_a_step_may_be_skipped_and_bits_stay(graph: Graph, skipped: str) -> None:
    wanted = run(lower(graph, machine=SMALL))
    with config.override(skip_passes=(skipped,), verify=True):
        assert run(lower(graph, machine=SMALL)) == wanted


@pytest.mark.sampled(4)
def test_lowering_may_be_stopped_anywhere_and_bits_stay(graph: Graph) -> None:
    wanted = run(lower(graph, machine=SMALL))
    for count in range(len(LOWERING)):
        with config.override(stop_after=len(PIPELINE) + count, verify=True):
            lowered = lower(graph, machine=SMALL)
        ran = {s.name for s in lowered.stages}
        assert ran.isdisjoint(n for n in OPTIONAL if n not in NAMES[:count])
        assert run(lowered) == wanted


def test_without_planning_no_two_values_share_memory() -> None:
    graph = optimised(lambda x, w: torch.relu(torch.relu(x @ w) @ w) @ w, torch.randn(64, 64), torch.randn(64, 64))
    with config.override(skip_passes=("arena", "row_fusion")):
        frame = lower(graph).frame
    spans = sorted((start, start + v.type.nbytes) for v, start in frame.offsets.items())
    assert len(spans) >= 2 and all(a[1] <= b[0] for a, b in pairwise(spans))


@pytest.mark.parametrize("name", [s.name for s in LOWERING if s.needed])
def test_what_makes_the_program_cannot_be_skipped(name: str) -> None:
    with (
        config.override(skip_passes=(name,)),
        pytest.raises(ValueError, match=f"required steps cannot be skipped: {name}"),
    ):
        build(attention())


def test_fusion_turned_off_is_its_steps_skipped() -> None:
    with config.override(fusion=False):
        off = lower(attention(), machine=SMALL)
    with config.override(skip_passes=tuple(pipeline.FUSING)):
        skipped = lower(attention(), machine=SMALL)
    assert print_program(off.program) == print_program(skipped.program)
    assert [s.name for s in off.stages][:2] == ["lowering", "without_fusion"]


@pytest.mark.sampled(2)
def test_the_text_of_a_frame_reads_back_and_lowering_goes_on_from_it(graph: Graph) -> None:
    lowered = lower(graph, machine=SMALL)
    for stage, following in zip(lowered.stages[:5], NAMES, strict=False):
        text = print_frame(stage.state)
        again = parse_frame(text, SMALL)
        assert plain(print_frame(again)) == plain(text)
        assert run(Lowered([replace(stage, state=resumed(again, following))])) == run(lowered)


def test_a_plan_may_be_changed_by_hand() -> None:
    """Which nodes share a kernel is data: here two kernels become one, with the same bits."""
    graph = optimised(lambda x: torch.exp(x) * 2 + 1, torch.randn(50))
    frame = lower(graph).stages[1].state
    text = print_frame(frame)
    [kernel] = [line for line in text.splitlines() if line.startswith("  kernel 0")]
    head, _, members = kernel.strip().removeprefix("kernel 0: ").partition(": ")
    first, *others = members.split(", ")
    space, last = head.split(" -> ")
    split = f"  kernel 0: {space} -> {first}: {first}\n  kernel 1: {space} -> {last}: {', '.join(others)}"
    changed = resumed(parse_frame(text.replace(kernel, split), frame.machine), "implicit_padding")
    assert changed.program is not None and len(changed.program.steps) == 2
    assert run(Lowered([replace(lower(graph).stages[0], state=changed)])) == run(lower(graph))


def test_not_a_line_of_a_plan() -> None:
    text = print_frame(lower(joined(), machine=SMALL).stages[1].state)
    with pytest.raises(ValueError, match="not a line of a plan: 'kernel 9"):
        parse_frame(text + "  kernel 9: loops over 3 -> %77: %77\n", SMALL)


def test_steps_are_dumped_after_the_passes(tmp_path: Path) -> None:
    with config.override(dump=str(tmp_path)):
        build(torch.trace(lambda x: torch.relu(x) + 1, torch.randn(5)), dump=Dump("f"))
    names = ["recorded", *(p.name for p in PIPELINE), "lowering", *NAMES]
    assert sorted(p.name for p in (tmp_path / "f").glob("*.ir")) == [f"{n:02d}_{x}.ir" for n, x in enumerate(names, 1)]
    assert "kernel k0" in (tmp_path / "f" / f"{len(names)}_program.ir").read_text()


def test_explain_tells_of_every_step() -> None:
    text = explain(lambda x: torch.relu(x) + 1, torch.randn(5)).text(everything=True)
    assert all(f"  {name}: " in text for name in (*(p.name for p in PIPELINE), *NAMES))


# ---- verification and failures


def broken(name: str, monkeypatch: pytest.MonkeyPatch, run: Callable[[Frame, Log], Frame]) -> None:
    steps = tuple(Step(s.name, run, s.doc) if s.name == name else s for s in LOWERING)
    monkeypatch.setattr(pipeline, "LOWERING", steps)


def test_a_failing_step_is_named_and_leaves_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(frame: Frame, log: Log) -> Frame:
        raise KeyError("lost")

    broken("row_fusion", monkeypatch, fail)
    with config.override(dump=str(tmp_path)), pytest.raises(CompileError, match="pass row_fusion failed on graph"):
        lower(looped())
    script = tmp_path / "tracecomp_reproduce_row_fusion.py"
    assert "plan main" in script.read_text()
    paths = {**os.environ, "PYTHONPATH": str(Path(torch.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=paths)
    assert done.returncode == 0, done.stderr  # the step of that name is whole there


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_its_step_on_its_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(frame: Frame, log: Log) -> Frame:
        raise KeyError("lost")

    whole = LOWERING
    broken(name, monkeypatch, fail)
    with config.override(dump=str(tmp_path)), pytest.raises(CompileError, match=f"pass {name} failed"):
        lower(attention(), machine=SMALL)
    monkeypatch.setattr(pipeline, "LOWERING", whole)
    script = (tmp_path / f"tracecomp_reproduce_{name}.py").read_text()
    exec(compile(script, "script", "exec"), {})


def _forget(frame: Frame, log: Log) -> Frame:
    """The last kernel but one is lost."""
    partition = frame.partition
    return replace(frame, partition=replace(partition, groups=[*partition.groups[:-2], partition.groups[-1]]))


def _overlap(frame: Frame, log: Log) -> Frame:
    """All temporary values at one place."""
    frame = next(s for s in LOWERING if s.name == "arena").run(frame, log)
    return replace(frame, offsets=dict.fromkeys(frame.offsets, 0))


def _no_home(frame: Frame, log: Log) -> Frame:
    """No kernel writes the results."""
    frame = next(s for s in LOWERING if s.name == "output_buffers").run(frame, log)
    return replace(frame, outputs=replace(frame.outputs, home=dict[Value, int]()))


@pytest.mark.parametrize(
    "name, wrong, message",
    [
        ("implicit_padding", _forget, "which no earlier kernel stored"),
        ("output_buffers", _no_home, "no kernel writes output 0"),
        ("arena", _overlap, "overlap at"),
    ],
)
def test_a_wrong_plan_is_noticed(name: str, wrong: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(name, monkeypatch, wrong)
    graph = optimised(lambda x, w: torch.softmax(torch.relu(x @ w) @ w, 1) @ w, torch.randn(9, 9), torch.randn(9, 9))
    with config.override(verify=True), pytest.raises(CompileError, match=message):
        lower(graph)


def test_frames_are_sound(graph: Graph) -> None:
    for stage in lower(graph, machine=SMALL).stages:
        verify_frame(stage.state)


@pytest.mark.parametrize(
    "old, new, write",
    [
        # Old contents are returned, and doubled in place by then.
        ("if target in self.shown:", "if False:", lambda x: (x.clone(), x.mul_(2.0))),
        # Old contents are read at mirrored places.
        ("is_aligned(v, target, self._reads_of(v, inside))", "True", lambda x: x.sub_(x.flip(1))),
    ],
)
def test_a_wrong_donation_is_noticed(old: str, new: str, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = find("passes.program.output_buffers:_Search._may_overwrite")
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source
    monkeypatch.setattr(function, "__code__", code_of(function, source.replace(old, new)))
    run = torch.compile(lambda x: write(x))
    with config.override(verify=True), pytest.raises(CompileError, match=r"store[sd] over"):
        for _ in range(3):
            run(torch.randn(4, 150))
