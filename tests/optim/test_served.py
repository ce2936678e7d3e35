"""Updates of parameters that machine code serves: nothing but time changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import EVERY, Warm
from tracecomp.optim import optimizer, served

STEPS = 2 * EVERY
CASES: dict[str, dict[str, Any]] = {
    "SGD": {}, "SGD momentum": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, "Adam": {},
    "Adam amsgrad": {"amsgrad": True, "weight_decay": 0.1, "maximize": True}, "AdamW": {}, "Adamax": {}, "NAdam": {},
    "RAdam": {}, "ASGD": {}, "Rprop": {}, "Adagrad": {}, "Adadelta": {}, "RMSprop": {"momentum": 0.5, "centered": True},
    "Adafactor": {}, "Muon": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(served_at_once: None) -> None:
    served._served.clear()


def machine_code() -> int:
    """How many kinds of updates machine code serves."""
    return sum(not isinstance(run, Warm) for u in served._served.values() for run in u._runs.values())


def trained(case: str) -> list[bytes]:
    """Parameters, state and counts of writes after steps with rates of a schedule."""
    rng = np.random.default_rng(0)
    shapes = [(5, 7), (3, 4)] if case == "Muon" else [(5, 7), (33,), ()]
    params = [torch.nn.Parameter(torch.from_numpy(np.asarray(rng.standard_normal(s), np.float32))) for s in shapes]
    if getattr(torch.optim, case.split()[0]).takes_complex and case != "Muon":
        params.append(torch.nn.Parameter(torch.ones(3, dtype=torch.complex64) * (1 + 2j)))
    made = getattr(torch.optim, case.split()[0])(params, lr=0.01, **CASES[case])
    for n in range(3 * STEPS):
        for group in made.param_groups:
            group["lr"] = 0.01 / (1 + n)
        for p in params:
            p.grad = torch.from_numpy(np.asarray(rng.standard_normal(p.shape), p.detach().numpy().dtype))
        made.step()
        if n == STEPS:
            background.finish()
    state = [v for p in params for v in made.state.get(p, {}).values() if isinstance(v, torch.Tensor)]
    return [x.detach().numpy().tobytes() for x in (*params, *state)]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("case", CASES)
def test_updates_keep_their_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(case)
    assert machine_code() or case in ("Adafactor", "Muon"), background.refused()
    monkeypatch.setattr(optimizer, "updates", lambda *args: None)
    assert found == trained(case)


def heated(option: float = 0.5) -> tuple[torch.nn.Parameter, Any]:
    """A parameter, and an optimizer whose updates of it machine code serves."""
    param = torch.nn.Parameter(torch.ones(8))
    made = torch.optim.SGD([param], lr=0.25, momentum=option)
    param.grad = torch.ones(8)
    for _ in range(3 * STEPS):
        made.step()
    background.finish()
    assert machine_code()
    return param, made


def test_writes_are_counted_and_seen_by_backward() -> None:
    param, made = heated()
    loss = (param * param).sum()
    before = param._version
    made.step()
    assert param._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_gradient_in_the_memory_of_its_parameter() -> None:
    param, made = heated()
    made.state.clear()
    made.step()
    with torch.no_grad():
        param.grad = param.detach()
        before = param.numpy().copy()
        buffer = made.state[param]["momentum_buffer"].numpy().copy()
    made.step()
    np.testing.assert_array_equal(param.detach().numpy(), before - 0.25 * (0.5 * buffer + before))


def test_inference_tensors_are_not_written() -> None:
    param, made = heated()
    with torch.inference_mode():
        made.state[param]["momentum_buffer"] = torch.ones(8)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        made.step()


def test_read_only_memory_is_not_written() -> None:
    param, made = heated()
    array = np.ones(8, np.float32)
    array.flags.writeable = False
    with torch.no_grad():
        param.data = torch.from_numpy(array)
    with pytest.raises(RuntimeError, match="read-only"):
        made.step()


def test_classes_of_users_are_called_themselves() -> None:
    class Mine(torch.optim.SGD):
        def _update(self, param: Any, grad: Any, state: Any, options: Any) -> None:
            calls.append(param)

    calls: list[Any] = []
    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    made = Mine([param], lr=0.1)
    for _ in range(3 * STEPS):
        made.step()
    assert len(calls) == 3 * STEPS
    assert not served._served
