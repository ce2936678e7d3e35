"""The eager profiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracecomp
from tracecomp import profiler
from tracecomp.autograd.profiler import profile


def test_operators_and_backward_steps_are_counted() -> None:
    x = tracecomp.ones(4, 4, requires_grad=True)
    with tracecomp.autograd.profiler.profile(enabled=True, use_cuda=False) as prof:
        for _ in range(3):
            (x.exp() @ x).sum().backward()
    found = {e.key: e for e in prof.key_averages()}
    assert found["exp"].count == 3 and found["contract"].count == 3 and found["ExpBackward0"].count == 3
    assert all(0 < e.self_cpu_time_total <= e.cpu_time_total for e in found.values())
    text = str(prof)
    assert "Self CPU time total" in text and "contract" in text
    rows = prof.table(sort_by="count", row_limit=1).splitlines()
    assert len(rows) == 6
    total = sum(e.self_cpu_time_total for e in found.values())
    assert abs(total - prof.self_cpu_time_total) < 1e-6


def test_nothing_is_measured_outside() -> None:
    with profile(enabled=False) as off:
        tracecomp.ones(2) + 1
    with profile() as prof:
        pass
    tracecomp.ones(2) + 1
    assert not off.key_averages() and not prof.key_averages()


def test_named_spans() -> None:
    @profiler.record_function("inner")
    def inner() -> None:
        tracecomp.ones(2).exp()

    measuring = profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True)
    with measuring as prof, profiler.record_function("outer"):
        inner()
        inner()
    found = {e.key: e for e in prof.key_averages(group_by_input_shape=True)}
    assert (found["outer"].count, found["inner"].count, found["exp"].count) == (1, 2, 2)
    assert found["outer"].cpu_time_total >= found["inner"].cpu_time_total >= found["exp"].cpu_time_total
    assert "outer" in prof.key_averages().table(sort_by="self_cuda_time_total")
    with profiler.record_function("outside"):
        pass


def test_schedules_choose_steps_as_pytorchs_do(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    options = {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}
    ours, theirs = profiler.schedule(**options), torch.profiler.schedule(**options)
    assert [ours(n).name for n in range(15)] == [theirs(n).name for n in range(15)]
    seen = []

    def ready(prof: profiler.profile) -> None:
        seen.append((prof.step_num, {e.key: e.count for e in prof.key_averages()}["exp"]))
        profiler.tensorboard_trace_handler(str(tmp_path / "log"))(prof)

    with profiler.profile(schedule=ours, on_trace_ready=ready) as prof:
        for _ in range(12):
            with profiler.record_function("step"):
                tracecomp.ones(2).exp()
                prof.step()
    assert seen == [(5, 2), (9, 2)]
    traces = [json.loads(path.read_text())["traceEvents"] for path in (tmp_path / "log").iterdir()]
    assert len(traces) == 2 and all({"exp"} <= {e["name"] for e in t} for t in traces)


def test_kernels_of_compiled_calls_are_entries() -> None:
    compiled, x = tracecomp.compile(lambda x: tracecomp.softmax(x @ x, -1)), tracecomp.randn(64, 64)
    for _ in range(3):
        compiled(x)
    assert compiled._chain
    with profiler.profile() as prof:
        for _ in range(2):
            compiled(x)
        assert not compiled._chain  # calls go through Python, which sees them
    found = {e.key: e for e in prof.key_averages()}
    assert found["compiled <lambda>"].count == found["k0_contract"].count == 2
    inside = [e for e in found.values() if e.key.startswith("k")]
    assert sum(e.cpu_time_total for e in inside) <= found["compiled <lambda>"].cpu_time_total
    assert compiled._chain  # an unobserved call still runs the same code


def test_tables_look_as_pytorchs_do() -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        torch.ones(8).exp()
    with profiler.profile() as ours:
        tracecomp.ones(8).exp()
    tables = [p.key_averages().table(sort_by="cpu_time_total").splitlines() for p in (theirs, ours)]
    assert [line.split() for line in (tables[0][1],)] == [line.split() for line in (tables[1][1],)]
    columns = [[len(part) for part in t[0].split()][1:] for t in tables]
    assert columns[0] == columns[1] and tables[0][0].endswith("  ") == tables[1][0].endswith("  ")
    assert [t[-1].partition(":")[0] for t in tables] == ["Self CPU time total"] * 2


def test_profiles_are_ended_from_outside() -> None:
    prof = tracecomp.autograd.profiler.profile()
    assert not tracecomp.autograd._profiler_enabled()
    prof.__enter__()
    tracecomp.ones(3).add(1)
    assert tracecomp.autograd._profiler_enabled()
    tracecomp.autograd._disable_profiler()
    assert not tracecomp.autograd._profiler_enabled()
    tracecomp.ones(3).exp()
    prof.__exit__(None, None, None)
    names = {event.key for event in prof.function_events.key_averages(group_by_input_shapes=False)}
    assert "add" in names and "exp" not in names
    assert "add" in prof.function_events.table(sort_by="cpu_time_total", row_limit=5)


def test_calls_and_their_sums_have_the_attributes_of_pytorchs(tmp_path: Path) -> None:
    with profile() as prof, profiler.record_function("outer"):
        tracecomp.ones(2).exp()
        tracecomp.ones(2).exp()
    calls = prof.function_events
    assert [e.key for e in calls] == [e.name for e in calls]
    assert all(e.count == 1 and e.time_range.elapsed_us() == pytest.approx(e.cpu_time_total) for e in calls)
    total = calls.total_average()
    assert total.count == len(calls) and total.self_cpu_time_total == pytest.approx(prof.self_cpu_time_total)
    outer = next(e for e in calls if e.name == "outer")
    assert outer.self_cpu_time_total < outer.cpu_time_total == pytest.approx(total.self_cpu_time_total)
    assert str(calls.key_averages()) == str(prof) and len(calls.table(row_limit=1).splitlines()) == 6
    calls.export_chrome_trace(str(tmp_path / "trace"))
    assert len(json.loads((tmp_path / "trace").read_text())["traceEvents"]) == len(calls)
