"""The eager profiler."""

from __future__ import annotations

import tracecomp
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
