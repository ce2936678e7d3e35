"""Every optimizer and schedule against PyTorch, step by step; saving; wrong arguments; one graph when compiled."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy
from tracecomp import nn, optim

torch = pytest.importorskip("torch")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "maximize": True}), ("ASGD", {"lr": 0.1, "t0": 3, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.05}), ("Adam", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True}), ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-4, "amsgrad": True, "maximize": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}), ("NAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}), ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.01}), ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}), ("Rprop", {"lr": 0.01}),
    ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}), ("LBFGS", {"lr": 0.05, "max_iter": 4}),
    ("LBFGS", {"max_iter": 6, "line_search_fn": "strong_wolfe", "history_size": 3}),
]  # fmt: skip

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(16, 5)).astype("float32"), RNG.normal(size=(16, 3)).astype("float32")
START = {k: RNG.normal(size=s).astype("float32") for k, s in (("w", (3, 5)), ("b", (3,)))}


def identify(value: Any) -> str:
    """A name without addresses: functions by what they are called."""
    if not isinstance(value, dict):
        return str(value)
    return "-".join(f"{k}={getattr(v, '__name__', v)}" for k, v in value.items())


def problem(library: Any) -> tuple[dict[str, Any], Any]:
    """Parameters of a linear model, and the loss of the whole data."""
    params = {k: library.tensor(v.copy()).requires_grad_() for k, v in START.items()}
    x, y = library.tensor(X), library.tensor(Y)

    def loss() -> Any:
        return ((x @ params["w"].t() + params["b"] - y) ** 2).mean().sqrt()

    return params, loss


def run(library: Any, params: dict[str, Any], loss: Any, optimizer: Any, steps: int) -> list[float]:
    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    losses = []
    for _ in range(steps):
        losses.append(float(optimizer.step(closure).detach()))
    return losses


@pytest.mark.parametrize(("name", "options"), CASES, ids=identify)
def test_steps_are_those_of_torch(name: str, options: dict[str, Any]) -> None:
    results = []
    for library in (tracecomp, torch):
        params, loss = problem(library)
        optimizer = getattr(library.optim, name)(list(params.values()), **options)
        losses = run(library, params, loss, optimizer, 8)
        state = optimizer.state_dict()
        results.append((losses, {k: v.detach().numpy() for k, v in params.items()}, state))
    (a, p, s), (b, q, t) = results
    np.testing.assert_allclose(a, b, rtol=1e-4 if name == "LBFGS" else 1e-5, atol=1e-6)
    if name == "LBFGS":  # near the minimum, rounding decides where the search stops
        return
    for key in START:
        np.testing.assert_allclose(p[key], q[key], rtol=1e-4, atol=1e-5)
    assert s["param_groups"] == t["param_groups"]
    assert {k: set(v) for k, v in s["state"].items()} == {k: set(v) for k, v in t["state"].items()}
    for number, entries in t["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                ours = s["state"][number][key]
                assert str(ours.dtype) == str(value.dtype) and tuple(ours.shape) == tuple(value.shape), key
                np.testing.assert_allclose(ours.numpy(), value.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(("name", "options"), CASES, ids=identify)
def test_saved_state_continues_exactly(name: str, options: dict[str, Any]) -> None:
    params, loss = problem(tracecomp)
    optimizer = getattr(optim, name)(list(params.values()), **options)
    run(tracecomp, params, loss, optimizer, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    values = {k: v.detach().clone() for k, v in params.items()}
    onward = run(tracecomp, params, loss, optimizer, 3)
    again, loss = problem(tracecomp)
    for key, value in values.items():
        again[key].data = value
    other = getattr(optim, name)(list(again.values()), **options)
    other.load_state_dict(saved)
    assert run(tracecomp, again, loss, other, 3) == onward


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] != "LBFGS"], ids=identify)
def test_a_whole_step_is_one_graph(name: str, options: dict[str, Any]) -> None:
    ways = []
    for compiled in (False, True):
        params, loss = problem(tracecomp)
        optimizer = getattr(optim, name)(list(params.values()), **options)

        def step(loss: Any = loss, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            return value

        call = tracecomp.compile(step) if compiled else by_numpy(step)
        losses = []
        for i in range(8):
            if i == 5:
                optimizer.param_groups[0]["lr"] *= 0.5
            losses.append(float(call()))
        ways.append(losses)
        if compiled:
            assert len(call.graphs) == 1
    np.testing.assert_allclose(ways[1], ways[0], rtol=1e-5, atol=1e-6)


def bits(optimizer: Any, params: list[Any]) -> list[Any]:
    """Parameters and state with their dtypes, bit by bit."""
    state = [optimizer.state[p][k] for p in params for k in sorted(optimizer.state[p])]
    tensors = [t.detach() for t in (*params, *state) if isinstance(t, tracecomp.Tensor)]
    return [(t.dtype, t.double().numpy().tobytes()) for t in tensors]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] != "LBFGS"], ids=identify)
def test_compiled_steps_have_the_bits_of_eager_ones(name: str, options: dict[str, Any], dtype: str) -> None:
    """Parameters without dimensions too, whose types numbers would decide if they were tensors."""

    def world() -> tuple[Any, list[Any], Any]:
        kind = getattr(tracecomp, dtype)
        params = [t.to(kind).requires_grad_() for t in (tracecomp.tensor(0.7137), tracecomp.linspace(-1, 1, 5))]
        optimizer = getattr(optim, name)(params, **options)

        def step(x: Any) -> None:
            optimizer.zero_grad(set_to_none=False)
            sum((p.float() * p.float() * x).sum() for p in params).backward()
            optimizer.step()

        return step, params, optimizer

    eager, compiled = world(), world()
    run = tracecomp.compile(compiled[0])
    for n in range(4):
        for _, _, optimizer in (eager, compiled):
            optimizer.param_groups[0]["lr"] *= 0.5 if n == 2 else 1
        eager[0](tracecomp.tensor(1.1 + n))
        run(tracecomp.tensor(1.1 + n))
        assert bits(compiled[2], compiled[1]) == bits(eager[2], eager[1])


def test_zero_grad_sets_gradients_to_zero_that_a_compiled_call_has_found() -> None:
    net = nn.Linear(4, 4)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).pow(2).mean()
        for p, g in zip(net.parameters(), tracecomp.autograd.grad(loss, [*net.parameters()]), strict=True):
            p.grad = g
        return loss

    run, x = tracecomp.compile(step), tracecomp.ones(3, 4)
    assert all(run(x).item() == step(x).item() for _ in range(4))


@pytest.mark.parametrize("name", sorted({c[0] for c in CASES}))
def test_argument_names_and_defaults(name: str) -> None:
    def arguments(cls: Any) -> dict[str, Any]:
        return {k: v.default for k, v in inspect.signature(cls.__init__).parameters.items() if k != "self"}

    assert arguments(getattr(optim, name)) == arguments(getattr(torch.optim, name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1.0}), ("SGD", {"momentum": -1.0}), ("SGD", {"nesterov": True}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"eps": -1.0}), ("AdamW", {"weight_decay": -1.0}), ("RMSprop", {"alpha": -1.0}),
        ("Rprop", {"etas": (2, 3)}),
        ("Adadelta", {"rho": 2.0}), ("Adagrad", {"lr_decay": -1.0}), ("Adafactor", {"d": 0.5}),
    ],
)  # fmt: skip
def test_wrong_options_raise_what_torch_raises(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as theirs:
        getattr(torch.optim, name)([torch.zeros(1, requires_grad=True)], **options)
    with pytest.raises(ValueError) as ours:
        getattr(optim, name)([tracecomp.zeros(1, requires_grad=True)], **options)
    assert str(ours.value) == str(theirs.value)


def test_groups_and_their_errors() -> None:
    a, b = nn.Parameter(tracecomp.ones(2)), nn.Parameter(tracecomp.ones(2))
    sgd = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
    a.grad, b.grad = tracecomp.ones(2), tracecomp.ones(2)
    sgd.step()
    np.testing.assert_allclose([a.detach().numpy()[0], b.detach().numpy()[0]], [0.9, 0.5], rtol=1e-6)
    with pytest.raises(ValueError, match="more than one parameter group"):
        sgd.add_param_group({"params": a})
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="iterable of Tensors or dicts"):
        optim.SGD(a)
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([a * 2])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        sgd.load_state_dict(optim.SGD([a]).state_dict())
    with pytest.raises(ValueError, match="doesn't match the size"):
        optim.SGD([a]).load_state_dict(optim.SGD([a, b]).state_dict())


def test_step_hooks_and_repr() -> None:
    p = nn.Parameter(tracecomp.ones(2))
    sgd, seen = optim.SGD([p], lr=0.1), []
    sgd.register_step_pre_hook(lambda *a: seen.append("before"))
    handle = sgd.register_step_post_hook(lambda *a: seen.append("after"))
    sgd.step()
    handle.remove()
    sgd.step()
    assert seen == ["before", "after", "before"]
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    assert repr(sgd) == repr(theirs)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3}), ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.5}), ("ConstantLR", {}),
    ("LinearLR", {"total_iters": 6}), ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}), ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}), ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 2, "mode": "triangular2", "step_size_down": 4}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 2, "mode": "exp_range", "gamma": 0.9}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 14}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 14, "three_phase": True, "anneal_strategy": "linear"}),
    ("OneCycleLR", {"max_lr": 0.3, "epochs": 7, "steps_per_epoch": 2, "pct_start": 0.5}),
]  # fmt: skip


def rates(library: Any, name: str, options: dict[str, Any], resume: bool) -> list[Any]:
    p = library.zeros(2, requires_grad=True)
    sgd = library.optim.SGD(
        [{"params": [p]}, {"params": [library.zeros(1, requires_grad=True)], "lr": 0.05}], lr=0.1, momentum=0.9
    )
    make = getattr(library.optim.lr_scheduler, name)
    schedule = make(sgd, **options)
    found = []
    for i in range(12):
        sgd.step()
        schedule.step()
        found.append([(g["lr"], g["momentum"]) for g in sgd.param_groups] + [schedule.get_last_lr()])
        if resume and i == 5:
            saved, groups = schedule.state_dict(), copy.deepcopy(sgd.state_dict())
            schedule = make(sgd, **options)
            schedule.load_state_dict(saved)
            sgd.load_state_dict(groups)
    return found


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=identify)
def test_schedules_are_those_of_torch(name: str, options: dict[str, Any], resume: bool) -> None:
    ours, theirs = rates(tracecomp, name, options, resume), rates(torch, name, options, False)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.hstack(a), np.hstack(b), rtol=1e-12)


def chained(library: Any, kind: str) -> list[float]:
    s = library.optim.lr_scheduler
    sgd = library.optim.SGD([library.zeros(2, requires_grad=True)], lr=0.1)
    parts = [s.ConstantLR(sgd, 0.1, total_iters=2), s.ExponentialLR(sgd, 0.9)]
    schedule = s.SequentialLR(sgd, parts, [4]) if kind == "sequential" else s.ChainedScheduler(parts)
    found = []
    for _ in range(9):
        sgd.step()
        schedule.step()
        found.append(sgd.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("kind", ["sequential", "chained"])
def test_combined_schedules(kind: str) -> None:
    np.testing.assert_allclose(chained(tracecomp, kind), chained(torch, kind), rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "cooldown": 2}])
def test_plateau(options: dict[str, Any]) -> None:
    metrics = [1.0, 0.9, 0.9, 0.95, 0.9, 0.91, 0.9, 0.89, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    found = []
    for library in (tracecomp, torch):
        sgd = library.optim.SGD([library.zeros(2, requires_grad=True)], lr=0.1)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(sgd, patience=2, **options)
        row = []
        for metric in metrics:
            schedule.step(metric)
            row.append((sgd.param_groups[0]["lr"], schedule.num_bad_epochs, schedule.best))
        found.append(row)
    assert found[0] == found[1]


def test_a_schedule_before_the_first_step_warns() -> None:
    schedule = optim.lr_scheduler.StepLR(optim.SGD([tracecomp.zeros(1, requires_grad=True)], lr=0.1), 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_weight_averages() -> None:
    averages = []
    for library in (tracecomp, torch):
        swa = library.optim.swa_utils
        model = library.nn.Sequential(library.nn.Linear(2, 2), library.nn.BatchNorm1d(2))
        with library.no_grad():
            for p in model.parameters():
                p.fill_(1.0)
        mean, ema = swa.AveragedModel(model), swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
        for value in (1.0, 4.0, 7.0):
            with library.no_grad():
                for p in model.parameters():
                    p.fill_(value)
            mean.update_parameters(model), ema.update_parameters(model)
        swa.update_bn([library.tensor(X[:, :2]), library.tensor(X[:, 2:4])], mean)
        averages.append([m.detach().numpy() for a in (mean, ema) for m in a.state_dict().values()])
    for ours, theirs in zip(*averages, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_swa_schedule() -> None:
    found = []
    for library in (tracecomp, torch):
        sgd = library.optim.SGD([library.zeros(2, requires_grad=True)], lr=0.1)
        schedule = library.optim.swa_utils.SWALR(sgd, 0.01, anneal_epochs=4)
        row = []
        for _ in range(7):
            sgd.step()
            schedule.step()
            row.append(sgd.param_groups[0]["lr"])
        found.append(row)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert math.isclose(found[0][-1], 0.01)


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("lr", [1e-6, 0.1, 10.0])
def test_a_line_search_keeps_to_the_budget_of_evaluations(budget: int, lr: float) -> None:
    w = tracecomp.nn.Parameter(tracecomp.zeros(2, dtype=tracecomp.float64))
    optimizer = tracecomp.optim.LBFGS([w], lr=lr, max_eval=budget, line_search_fn="strong_wolfe")
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = ((w - 1) ** 4).sum() + w[0] ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert calls <= budget + 1  # the first step of a search is always tried
    assert optimizer.state[w]["func_evals"] == calls
