"""``explain``: the answer, its numbers, and reasons that are true of kernels made to have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.inspect import assembly, bottleneck, explain
from tracecomp.inspect.bottleneck import Measured, limit_of
from tracecomp.inspect.kernel_cost import cost_of
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Call, Const, Load, Loop, Store, Update
from tracecomp.ir.program import Kernel
from tracecomp.ir.types import float32
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.rates import Rates
from tracecomp.runtime import peaks

MACHINE = Machine(vector_bytes=64, registers=32)


def kernel_of(fn: Callable[..., Any], *args: Any, number: int = 0) -> Kernel:
    program = build(torch.trace(fn, *args), machine=MACHINE).program
    return [s.kernel for s in program.steps if hasattr(s, "kernel")][number]


def reason(fn: Callable[..., Any], *args: Any, seconds: float, threads: int = 1, code: Any = ()) -> str:
    return limit_of(kernel_of(fn, *args), Measured(seconds, threads), MACHINE, code).name


# ---- demand


def test_a_product_asks_for_its_multiply_adds_and_an_elementwise_kernel_for_its_operations() -> None:
    product = cost_of(kernel_of(lambda a, b: a @ b, torch.randn(32, 64), torch.randn(64, 48)), MACHINE)
    assert product.arithmetic == 32 * 64 * 48
    assert sum(product.memory.values()) == 4 * (32 * 64 + 64 * 48 + 32 * 48)
    divided = cost_of(kernel_of(lambda a, b: a / b + 1, torch.randn(1000), torch.randn(1000)), MACHINE)
    assert divided.divisions == 1000 and divided.arithmetic == 1000 and divided.functions == 0


def test_rows_that_do_not_fill_vectors_use_a_part_of_the_lanes() -> None:
    # nine floats a row: two vectors of which nine lanes hold elements are 9 of 32, one of nine and masked 9 of 16
    found = cost_of(kernel_of(lambda x: (x * 2).amax(1), torch.randn(400, 9)), MACHINE)
    assert found.lanes_used < 0.7
    whole = cost_of(kernel_of(lambda x: x * 2 + 1, torch.randn(64, 64)), MACHINE)
    assert whole.lanes_used == 1.0


def test_elements_at_places_known_at_run_time_are_gathered() -> None:
    found = cost_of(kernel_of(lambda x, i: x[i] * 2, torch.randn(4096), torch.randint(0, 4096, (512,))), MACHINE)
    assert found.gathered == 512


def test_additions_in_order_wait_for_each_other() -> None:
    total, source, place = Buffer("y", float32, 1), Buffer("x", float32, 1000), Var("k", 1000)
    add = Loop("serial", place, (Update("s", (Load(source, index(place)),)),))
    body = Accumulate((Acc("s", "add", float32, Const(0.0, float32)),), (add,))
    kernel = Kernel("sum", (source, total), frozenset({"y"}), (body,))
    assert cost_of(kernel, MACHINE).waits == 1000
    lanes = Accumulate((Acc("s", "add", float32, Const(0.0, float32), lanes=4),), (add,))
    assert cost_of(Kernel("sum", (source, total), frozenset({"y"}), (lanes,)), MACHINE).waits == 250


# ---- reasons


RATES = Rates(6e10, 1e10, 3.4e9, 1.5e11, 2.8e10, 0.0)


@pytest.fixture
def measured_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what ``explain`` measures by rates of one core of a Zen 4: times differ between runs and machines."""
    monkeypatch.setattr(bottleneck, "rates_now", lambda: RATES)
    monkeypatch.setattr(peaks, "bandwidth", lambda cores=1: RATES.bandwidth * cores)


@pytest.mark.usefixtures("measured_rates")
def test_reasons_are_those_that_a_kernel_was_made_to_have() -> None:
    rand = torch.rand(64, 256) + 1
    assert reason(lambda x, y: x / y / (x + y), rand, rand, seconds=3.6e-6) == "division"
    indices = torch.randint(0, 4096, (65536,))
    assert reason(lambda x, i: x[i] * 2, torch.randn(4096), indices, seconds=30e-6) == "gather"
    far = torch.randint(0, 1 << 21, (1 << 14,))
    assert reason(lambda x, i: x[i] * 2, torch.randn(1 << 21), far, seconds=200e-6) == "cache misses"
    assert reason(torch.exp, torch.randn(256, 256), seconds=12e-6) == "functions"
    assert reason(lambda x: x + 1, torch.randn(1 << 21), seconds=900e-6) == "bandwidth"
    assert reason(lambda x: (x * 2).amax(1), torch.randn(4000, 9), seconds=300e-6) == "tail"
    assert reason(lambda x: x + 1, torch.randn(4), seconds=50e-9) == "short"
    assert reason(lambda x: x + 1, torch.randn(64), seconds=20e-6, threads=2) == "little work"


@pytest.mark.usefixtures("measured_rates")
def test_waking_threads_and_waits_are_reasons() -> None:
    x, y, i, j = Buffer("x", float32, 4096), Buffer("y", float32, 4096), Var("i", 256), Var("j", 16)
    copied = Loop("vector", j, (Store(y, index(i) * 16 + index(j), Load(x, index(i) * 16 + index(j))),))
    names = {}
    for kind in ("parallel", "opportunistic"):  # an opportunistic loop uses the threads that are awake
        kernel = Kernel("k", (x, y), frozenset({"y"}), (Loop(kind, i, (copied,)),))
        names[kind] = limit_of(kernel, Measured(16e-6, 2), MACHINE, ()).name
    assert names["parallel"] == "waking threads" != names["opportunistic"]
    wide = torch.randn(1 << 16)
    assert reason(lambda x: x + 1, wide, seconds=900e-6) == "latency"


@pytest.mark.usefixtures("measured_rates")
def test_a_disturbed_measurement_is_the_reason_when_no_resource_is() -> None:
    kernel = kernel_of(lambda x: x + 1, torch.randn(1 << 16))
    found = limit_of(kernel, Measured(1.0, 1, disturbed=True), MACHINE, ())
    assert found.name == "disturbed" and "measure again" in found.advice
    assert "no single cause" not in str(limit_of(kernel, Measured(1.0, 1), MACHINE, ()))


@pytest.mark.usefixtures("measured_rates")
def test_a_transpose_is_named_whether_its_loads_or_its_stores_are_apart() -> None:
    assert reason(lambda x: x.t().contiguous(), torch.randn(512, 512), seconds=110e-6) == "transposed reading"


def test_the_memory_of_small_calls_is_not_measured() -> None:
    memory = explain(lambda x: torch.softmax(x, -1), torch.randn(64, 64)).graphs[0].memory
    assert memory.predicted > 0 and memory.measured is None


def test_strided_loads_and_short_loops_are_counted() -> None:
    x, y, i, j, k = Buffer("x", float32, 1024), Buffer("y", float32, 64), Var("i", 16), Var("j", 4), Var("k", 4)
    load = Load(x, index(k) * 64 + index(i) * 4 + index(j))
    loop = Loop("serial", j, (Loop("vector", k, (Store(y, index(i) * 4 + index(k), load),)),))
    found = cost_of(Kernel("k", (x, y), frozenset({"y"}), (Loop("serial", i, (loop,)),)), MACHINE)
    assert found.strided == 16 * 4 * 4 and found.gathered == 0
    assert found.short_loops == 16 and found.rounds == 64


@pytest.mark.usefixtures("measured_rates")
def test_registers_on_the_stack_are_seen_in_the_inner_loop() -> None:
    loop = [
        ".LBB0_1:",
        *["    vmovaps %zmm1, 64(%rsp)"] * 3,
        *["    vfmadd231ps %zmm1, %zmm2, %zmm3"] * 7,
        "    jne .LBB0_1",
    ]
    assert assembly.spills(["    vmovaps %zmm1, (%rsp)", *loop]) == (3, 11)
    assert reason(lambda x: x + 1, torch.randn(64, 64), seconds=5e-5, code=[loop]) == "spill"


def test_the_innermost_loop_is_the_one_that_holds_no_other() -> None:
    body = [".LBB0_1:", "    addq $1, %rax", ".LBB0_2:", "    addq $1, %rbx", "    jb .LBB0_2", "    jb .LBB0_1"]
    assert list(assembly.innermost_loops(body)) == [(2, 4)]


# ---- the whole


def step(x: Any, w: Any) -> Any:
    return torch.softmax(x @ w, -1).sum(0)


@pytest.fixture(scope="module")
def explained() -> Any:
    return explain(step, torch.randn(64, 32), torch.randn(32, 48))


def test_the_short_text_begins_with_the_answer_and_stays_short(explained: Any) -> None:
    lines = str(explained).splitlines()
    assert lines[0] == "step: recordings 1, in use 1" and "kernel calls" in lines[1]
    assert len(lines) < 30 and any("pays after" in line or "no break-even" in line for line in lines)


def test_kernels_name_their_lines_and_add_up(explained: Any) -> None:
    (graph,) = explained.graphs
    assert all(k.limit is not None and k.seconds > 0 and k.share > 0 for k in graph.kernels)
    assert {s.rpartition("/")[2].partition(":")[0] for k in graph.kernels for s in k.sources} == {"test_explain.py"}
    assert graph.seconds == pytest.approx(sum(k.seconds for k in graph.profile.kernels))
    assert [k.name for k in graph.kernels] == [k.name for k in graph.profile.kernels]


def test_kernels_that_are_not_one_have_a_reason(explained: Any) -> None:
    (graph,) = explained.graphs
    assert len(graph.kernels) > 1 and graph.apart
    assert all(a.producer != a.consumer and a.reason and a.nbytes > 0 for a in graph.apart)


def test_the_memory_plan_is_what_a_call_takes(explained: Any) -> None:
    (graph,) = explained.graphs
    memory = graph.memory
    assert memory.arguments == 4 * (64 * 32 + 32 * 48) and memory.results == 4 * 48
    assert all(b.offset + b.nbytes <= memory.arena and b.first <= b.last for b in memory.blocks)


@pytest.mark.slow
def test_measured_memory_is_about_what_was_predicted() -> None:
    found = explain(lambda x: torch.softmax(torch.softmax(x, -1) @ x, -1), torch.randn(1024, 1024)).graphs[0].memory
    if found.measured is None:
        pytest.skip("this system does not tell how much memory a process has held")
    assert 0.95 * found.predicted <= found.measured <= 1.3 * found.predicted


def test_data_is_what_json_takes(explained: Any) -> None:
    data = json.loads(json.dumps(explained.data()))
    assert data["name"] == "step" and data["recordings"][0]["graphs"][0]["kernels"][0]["limit"]["words"]
    assert "<pre" in explained._repr_html_()


def test_everything_has_guards_steps_and_schedules(explained: Any) -> None:
    text = explained.text(everything=True)
    for part in ("captured step", "reused while", "steps:", "simplify", "kernels:", "not fused:"):
        assert part in text


def test_why_a_call_was_recorded_again_has_both_values() -> None:
    compiled = torch.compile(lambda x, n: x * n)
    for shape, n in (((3,), 2), ((4,), 2), ((4,), 3)):
        compiled(torch.ones(shape), n)
    text = str(compiled.explain())
    assert "shape of argument [0] went from (3,) to (4,)" in text and "went from 2 to 3" in text


def test_recordings_in_use_are_made_by_calls_or_derived() -> None:
    compiled = torch.compile(lambda x: torch.exp(x).sum())
    for n in (3, 4, 5, 6, 7):
        compiled(torch.ones(n))
    found = compiled.explain()
    assert len(found.recordings) <= found.made + found.derived and found.derived == 1
    first = str(found).splitlines()[0]
    assert first.endswith("1 of them derived for other sizes without a call")


def test_explaining_changes_no_state() -> None:
    w = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)

    def train(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    compiled, x = torch.compile(train), torch.ones(4)
    for _ in range(3):
        compiled(x)
    before, gradient = w.detach().numpy().copy(), w.grad.numpy().copy()
    compiled.explain(x)
    assert np.array_equal(w.detach().numpy(), before) and np.array_equal(w.grad.numpy(), gradient)


def test_a_function_that_runs_eagerly_says_why() -> None:
    compiled = torch.compile(lambda x: x.numpy() + 1)
    with pytest.warns(UserWarning, match="graph break in"):
        compiled(torch.ones(2))
    assert "graph break: the program calls numpy()" in str(compiled.explain(torch.ones(2)))
    off = torch.compile(lambda x: x + 1, disable=True)
    assert "runs eagerly: disable=True" in str(off.explain(torch.ones(2)))


def test_an_operation_is_counted_once_for_all_elements_that_share_it() -> None:
    x, y, i, j = Buffer("x", float32, 8), Buffer("y", float32, 128), Var("i", 8), Var("j", 16)
    shared = Call("exp", (Load(x, index(i)),), float32)
    store = Store(y, index(i) * 16 + index(j), shared)
    kernel = Kernel("k", (x, y), frozenset({"y"}), (Loop("serial", i, (Loop("vector", j, (store,)),)),))
    found = cost_of(kernel, MACHINE)
    assert found.functions == 8 * 12 and found.loaded_bytes == 8 * 4
