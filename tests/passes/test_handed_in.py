"""Schedules by hand: they print, parse, run with the same bits, and are refused with a reason if they do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
import tracecomp.nn.functional as nn
from tests.codegen.running import run_built, same_bits
from tests.passes.row_fusion.test_implicit_padding import depthwise
from tracecomp.__main__ import main
from tracecomp.inspect import schedules, try_schedules
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.program import call_steps
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import host, on
from tracecomp.passes.schedule.records import ScheduleError, parse_records
from tracecomp.runtime.executable import Executable

SHARING = host().tuned(parallel_work=1, parallel_products=1)


def product(a: Any, b: Any) -> Any:
    return torch.relu(a @ b)


def gradient(x: Any, given: Any) -> Any:
    w = torch.zeros((40, 16, 3, 3), requires_grad=True)
    return torch.autograd.grad(nn.conv2d(x.permute(0, 3, 1, 2), w), w, given.permute(0, 3, 1, 2))


Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str, str]

CASES: dict[str, Case] = {
    "small tiles": (product, ((37, 90), (90, 70)), "k0", "register tiles\n width 16\n height 3\n"),
    "lanes along the other side": (
        product, ((37, 90), (90, 70)), "k0",
        "register tiles\n vector m\n width 16\n tail 0\n tile n\n height 5\n pack once\n pack_threads serial serial\n",
    ),
    "packed once": (product, ((37, 90), (90, 70)), "k0", "register tiles\n width 32\n pack once\n"),
    "packed by the block": (product, ((37, 90), (90, 70)), "k0", "register tiles\n pack block\n row_blocks 2 1\n"),
    "k-blocks": (product, ((37, 90), (90, 70)), "k0", "register tiles\n k_blocks k/32\n row_blocks 2 1\n"),
    "k-blocks of packed panels": (product, ((37, 90), (90, 70)), "k0", "register tiles\n pack once\n k_blocks k/7\n"),
    "k-blocks, threads": (
        product, ((64, 200), (200, 96)), "k0", "register tiles\n k_blocks k/64\n threads parallel\n row_blocks 5\n"
    ),
    "fetched ahead": (product, ((37, 90), (90, 70)), "k0", "register tiles\n prefetch_terms 8\n prefetch p2\n"),
    "lines ahead": (lambda a, b: a @ b.t(), ((3, 96), (50, 96)), "k0", "register tiles\n lines_ahead yes\n"),
    "a copy": (product, ((37, 90), (90, 70)), "k0", "register tiles\n copies lhs\n copy_threads serial\n"),
    "batched": (
        lambda a, b: a @ b, ((3, 20, 30), (3, 30, 33)), "k0", "register tiles\n height 4\n threads opportunistic\n"
    ),
    "other k-blocks": (lambda a, b: a.t() @ b, ((3000, 40), (3000, 50)), "k0", "register tiles\n k_blocks k/100\n"),
    "no k-blocks": (lambda a, b: a.t() @ b, ((3000, 40), (3000, 50)), "k0", "register tiles\n k_blocks -\n"),
    "rows of a softmax": (lambda x: torch.softmax(x, -1), ((33, 100),), "k0", "lanes along rows\n rows_at_once 3\n"),
    "columns": (lambda x: x.sum(0) + x.amax(0), ((50, 70),), "k0", "lanes across rows\n width 16\n threads parallel\n"),
    "in another order": (
        lambda x: x.permute(1, 0, 2) * 2.0, ((5, 6, 40),), "k0", "lanes across rows\n width 8\n order i0_i_o i0_o\n"
    ),
    "transposed": (lambda x: x.t().contiguous(), ((50, 70),), "k0", "transposed\n width 32\n height 16\n"),
    "Winograd": (
        lambda x, w: nn.conv2d(x.permute(0, 3, 1, 2), w), ((2, 14, 14, 16), (40, 16, 3, 3)), "k0",
        "winograd\n width 16\n block 10\n threads parallel\n",
    ),
    "Winograd's gradient": (
        gradient, ((2, 14, 14, 16), (2, 12, 12, 40)), "k0",
        "winograd weight gradient\n width 16\n run 5\n chunk 7\n threads parallel\n",
    ),
    "transposed by lanes": (lambda x: x.t().contiguous(), ((50, 70),), "k0", "lanes across rows\n width 16\n"),
}  # fmt: skip


def traced(name: str) -> tuple[Any, list[Any]]:
    fn, shapes, *_ = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return torch.trace(fn, *map(torch.from_numpy, arrays)), arrays


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_schedule_by_hand_changes_the_loops_and_no_bit(name: str) -> None:
    *_, kernel, text = CASES[name]
    graph, arrays = traced(name)
    chosen, by_hand = build(graph), build(graph, schedules={kernel: text})
    verify_program(by_hand.program)
    assert print_program(chosen.program) != print_program(by_hand.program)
    want = run_built(chosen, Executable(chosen.program), graph, arrays)
    for threads in (1, 3):
        found = run_built(by_hand, Executable(by_hand.program), graph, arrays, threads)
        assert all(map(same_bits, found, want))
    made = next(step.kernel for step in call_steps(by_hand.program.steps)).schedules[0]
    [asked], [used] = parse_records(text), parse_records(made)
    assert {field: used.fields[field] for field in asked.fields} == asked.fields


@pytest.mark.parametrize("name", CASES)
def test_what_prints_can_be_handed_in(name: str) -> None:
    """Every field by hand, as chosen on a machine whose threads share everything, is that machine's program."""
    graph, _ = traced(name)
    with on(SHARING):
        chosen = build(graph)
    kernels = {step.kernel.name: step.kernel for step in call_steps(chosen.program.steps)}
    texts = {kernel.name: "\n".join(kernel.schedules) for kernel in kernels.values() if kernel.schedules}
    assert print_program(build(graph, schedules=texts).program) == print_program(chosen.program)


@pytest.mark.parametrize(("name", "text", "why"), [
    ("small tiles", "register tiles\n width 0\n", "width must be 1 to"),
    ("small tiles", "register tiles\n height 99\n", "height must be 1 to"),
    ("small tiles", "register tiles\n vector q\n", "the variables of this loop nest are m, n, k"),
    ("small tiles", "register tiles\n vector k\n", "must be variables of the result"),
    ("small tiles", "register tiles\n vector m\n tile m\n", "is repeated"),
    ("small tiles", "register tiles\n k_blocks k/0\n", "one with its block length"),
    ("small tiles", "register tiles\n k_blocks m/4\n", "in this order"),
    ("small tiles", "register tiles\n row_blocks 1\n", "one number per column"),
    ("small tiles", "register tiles\n height 37\n width 64\n", "exceeds the"),
    ("small tiles", "register tiles\n speed 9\n", "no field speed"),
    ("small tiles", "register tiles\n width many\n", "expected a number"),
    ("small tiles", "register tiles\n threads all\n", "expected parallel, opportunistic or serial"),
    ("small tiles", "register tiles\n width 8\n width 16\n", "width is set twice"),
    ("small tiles", " width 8\n", "expected a title, or a field and its value"),
    ("small tiles", "lanes across rows\n width 8\n", "has a schedule 'register tiles'"),
    ("small tiles", "register tiles\nregister tiles\n", "remove the extra record"),
    ("rows of a softmax", "lanes along rows\n rows_at_once 0\n", "rows_at_once must be 1 to 33"),
    ("transposed", "transposed\n load i0_i\n store i0_o\n", "load and store cannot be changed"),
    ("in another order", "lanes across rows\n order i0_i_o\n", "order must list"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(name: str, text: str, why: str) -> None:
    graph, _ = traced(name)
    with pytest.raises(ScheduleError, match=re.escape(why)):
        build(graph, schedules={"k0": text})


def test_terms_of_padding_cannot_be_chosen_by_hand() -> None:
    """With infinite weights that would show."""
    graph = torch.trace(depthwise(3, 1, 1), torch.randn(2, 9, 11, 48), torch.randn(48, 1, 3, 3))
    steps = call_steps(build(graph).program.steps)
    [name] = {s.kernel.name for s in steps if any("written_out    yes" in text for text in s.kernel.schedules)}
    with pytest.raises(ScheduleError, match="skipped padding terms affect the bits"):
        build(graph, schedules={name: "register tiles\n written_out no\n"})


def test_a_kernel_that_is_not_there_is_named() -> None:
    graph, _ = traced("small tiles")
    with pytest.raises(ScheduleError, match="unknown kernel k7; kernels are k0_contract_relu"):
        build(graph, schedules={"k7": ""})


def test_a_replaced_schedule_keeps_the_bits_and_is_timed() -> None:
    a, b = torch.randn(40, 60), torch.randn(60, 64)
    texts = schedules(product, a, b)
    assert "register tiles" in texts["k0_contract_relu"]
    tried = try_schedules({"k0": "register tiles\n height 1\n width 16\n"}, product, a, b, threads=1)
    assert tried.same_bits and "same bits" in str(tried)
    [(before, after)] = tried.seconds.values()
    assert before > 0.0 and after > 0.0


def test_the_command_prints_records_and_runs_them_from_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text("def f(a, b):\n    return a @ b\n")
    target = [f"{tmp_path}/program.py:f", "--shape", "40,60", "--shape", "60,64"]
    assert main(["schedule", *target]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# k0_contract\nregister tiles\n  vector         n\n")
    (tmp_path / "my.sched").write_text(text.replace("height         6", "height         4"))
    assert main(["schedule", *target, "--use", f"k0={tmp_path}/my.sched"]) == 0
    assert re.search(r"k0_contract +[\d.]+us +[\d.]+us +[\d.]+\nsame bits", capsys.readouterr().out)
    assert main(["schedule", *target, "--use", "k0"]) == 2
    (tmp_path / "my.sched").write_text("register tiles\n height 0\n")
    assert main(["schedule", *target, "--use", f"k0={tmp_path}/my.sched"]) == 2
    assert "height must be 1 to" in capsys.readouterr().err
