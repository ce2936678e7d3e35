"""The reference of tests of values runs no generated code."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import by_numpy, numpy_reference
from tracecomp import eager_kernels, nn, optim
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import EVERY

KERNELS = (
    "contract", "convolve", "eliminate", "evaluate_natively", "random_bits", "reduce_in_order", "run_region",
    "transform",
)  # fmt: skip


def training() -> Any:
    """A step of which every part has a native kernel in eager mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(18, 4), nn.Dropout(0.5))
    cell, rule = nn.GRU(4, 4), optim.Adam([*model.parameters()], lr=0.01)
    x = torch.randn(5, 2, 8)

    def step() -> Any:
        torch.manual_seed(1)
        rule.zero_grad()
        y = cell(model(x)[None])[0]
        product = y[0].t() @ y[0] + torch.eye(4)
        loss = torch.linalg.cholesky(product).sum() + torch.fft.rfft(y).abs().sum() + y.softmax(-1).prod()
        loss.backward()
        rule.step()
        return loss.detach()

    return step


def test_no_kernel_of_eager_mode_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    step = training()
    called: list[str] = []
    this_thread = threading.get_ident()
    with monkeypatch.context() as patch:
        for name in KERNELS:
            kernel = getattr(eager_kernels, name)

            def run(*args: Any, _name: str = name, _kernel: Any = kernel, **attrs: Any) -> Any:
                if threading.get_ident() == this_thread:  # the background compiles what earlier tests called
                    called.append(_name)
                return _kernel(*args, **attrs)

            patch.setattr(eager_kernels, name, run, raising=False)
        with numpy_reference():
            want = training()().item()
        assert not called
        found = step().item()
    assert found == pytest.approx(want, rel=1e-4)
    assert set(KERNELS) - {"random_bits"} <= set(called)


def test_functions_that_machine_code_serves_run_by_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REST", 0.0)
    x = torch.tensor(np.random.default_rng(0).standard_normal((33, 70)).astype(np.float32))
    calls = {"erf": lambda: torch.erf(x), "softmax": lambda: x.softmax(1), "sum": lambda: x.sum(1)}
    cold = {name: by_numpy(call)().numpy().tobytes() for name, call in calls.items()}
    for _ in range(4 * EVERY):
        for call in calls.values():
            call()
    background.finish()
    for name, call in calls.items():
        assert by_numpy(call)().numpy().tobytes() == cold[name], name
        assert call().numpy().tobytes() != cold[name], f"{name} has the same bits either way, and shows nothing"


def test_outside_of_the_block_and_in_other_threads_nothing_changes() -> None:
    x = torch.linspace(-3, 3, 501)
    native, found = x.erf().numpy(), []
    with numpy_reference():
        assert x.erf().numpy().tobytes() != native.tobytes()
        thread = threading.Thread(target=lambda: found.append(x.erf().numpy()))
        thread.start()
        thread.join()
    assert [f.tobytes() for f in (*found, x.erf().numpy())] == [native.tobytes()] * 2
