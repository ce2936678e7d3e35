"""``tracecomp.jit(True)``: modules and optimizers that compile themselves, compared with eager ones in bits."""

from __future__ import annotations

import copy
import gc
import io
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.compiled import call_dispatch, hot_modules
from tracecomp.compiled.hot_modules import AFTER, jit

STEPS = 3 * AFTER


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    jit(False)


def is_hot(owner: Any) -> bool:
    """Whether it has compiled itself."""
    return owner in hot_modules._compiled


class Noisy(nn.Module):
    """Random numbers, a buffer that each call changes, and a path that depends on the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.inner(x)
        return y + torch.randn_like(y) if self.training else y * self.calls


def classifier() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


MODELS: dict[str, Callable[[], Any]] = {
    "classifier": classifier,
    "noisy": Noisy,
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(1)
    ),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def trained(model: str, optimizer: str, hot: bool) -> tuple[list[bytes], Any, Any]:
    """Losses, parameters and buffers of a training with evaluations in between, another batch size, and a schedule."""
    jit(hot)
    torch.manual_seed(0)
    net = MODELS[model]()
    update = OPTIMIZERS[optimizer](net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(update, 4)
    found = []
    for n in range(STEPS):
        update.zero_grad()
        x = torch.randn(5 if n == STEPS - 2 else 7, 6)
        loss = (net(x) ** 2).mean()
        loss.backward()
        update.step()
        schedule.step()
        found.append(loss.detach().numpy().tobytes())
        if n % 3 == 2:
            net.eval()
            with torch.no_grad():
                found.append(net(x).numpy().tobytes())
            net.train()
    found += [t.detach().numpy().tobytes() for t in net.state_dict().values()]
    return found, net, update


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_training_has_the_bits_of_eager_mode(model: str, optimizer: str) -> None:
    eager, net, _ = trained(model, optimizer, False)
    assert not is_hot(net)
    hot, net, update = trained(model, optimizer, True)
    assert is_hot(net) and is_hot(update)
    assert hot == eager
    assert not any(is_hot(m) for m in net.modules() if m is not net)


def test_calls_that_do_not_repeat_stay_eager() -> None:
    jit(True)
    net = classifier()
    for _ in range(AFTER - 1):
        net(torch.ones(2, 6))
    assert not is_hot(net)
    net(torch.ones(2, 6))
    assert is_hot(net)


class Branching(nn.Module):
    """Its graph breaks: it depends on a value."""

    def forward(self, x: Any) -> Any:
        return x * 2 if float(x.sum()) in (1.0, 2.0, 3.0) else x + len(str(x))


class Failing(nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return x * 2


def test_what_no_graph_can_hold_stays_eager_without_a_word() -> None:
    jit(True)
    net, plain = Branching(), Branching()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(40):
            x = torch.full((2,), n / 3.0)
            assert net(x).tolist() == plain.forward(x).tolist()
    (called,) = [c for c in call_dispatch._all if c.fn == net._call_impl]
    assert called.eager_because is not None and called.parts is None


def test_errors_are_those_of_the_module() -> None:
    jit(True)
    net = Failing()
    for n in range(12):
        if n % 3 == 0:
            with pytest.raises(ValueError, match="three rows"):
                net(torch.ones(3))
        assert net(torch.ones(2)).tolist() == [2.0, 2.0]


def test_what_changes_between_calls_is_seen() -> None:
    jit(True)
    net = classifier()
    plain = copy.deepcopy(net)
    x = torch.randn(2, 6)
    for n in range(STEPS + 6):
        if n == STEPS:
            for m in (net, plain):
                m[0].weight.data = m[0].weight.data * 2
        if n == STEPS + 1:
            for m in (net, plain):
                m[1] = nn.Tanh()
        if n == STEPS + 2:
            for m in (net, plain):
                m.register_forward_hook(lambda _, given, result: result + 1)
        if n == STEPS + 3:
            for m in (net, plain):
                m[2].register_forward_pre_hook(lambda _, given: (given[0] * 0.5,))
        if n == STEPS + 4:
            x = x.double()
            for m in (net, plain):
                m.double()
        wanted = plain._call_impl(x)
        assert net(x).tolist() == wanted.tolist()
    assert is_hot(net)


def test_copies_and_files_know_nothing_of_it() -> None:
    jit(True)
    net = classifier()
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        net(torch.ones(2, 6)).sum().backward()
        update.step()
    twin = copy.deepcopy(net)
    assert "_compiled_call_impl" not in vars(twin) and not is_hot(twin)
    assert "_compiled_step" not in vars(copy.deepcopy(update))
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)(torch.ones(2, 6)).tolist() == net(torch.ones(2, 6)).tolist()


def test_off_is_off() -> None:
    torch.jit(True)  # type: ignore[operator]
    net, compiled = classifier(), classifier()
    compiled.compile()
    for _ in range(STEPS):
        net(torch.ones(2, 6)), compiled(torch.ones(2, 6))
    assert is_hot(net) and not is_hot(compiled)
    torch.jit(False)  # type: ignore[operator]
    assert vars(net).get("_compiled_call_impl") is None
    assert vars(compiled).get("_compiled_call_impl") is not None
    assert not is_hot(net)


def test_the_programs_own_compilation_replaces_it() -> None:
    jit(True)
    for compile in (lambda m: m.compile(), torch.compile):
        net = classifier()
        for _ in range(STEPS):
            net(torch.ones(2, 6))
        assert is_hot(net)
        compile(net)
        assert not is_hot(net)
    net.compile()
    jit(False)
    assert vars(net)["_compiled_call_impl"] is not None


def test_compiled_functions_capture_hot_modules() -> None:
    jit(True)
    net = classifier()
    for _ in range(STEPS):
        net(torch.ones(2, 6))
    compiled = torch.compile(lambda x: net(x).sum(), fullgraph=True)
    for n in range(4):
        x = torch.full((2, 6), float(n))
        assert compiled(x).tolist() == net(x).sum().tolist()
    assert len(compiled.graphs) == 1


class Unhashable(nn.Module):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def forward(self, x: Any) -> Any:
        return x + 1


def test_modules_without_a_hash_stay_eager() -> None:
    jit(True)
    net = Unhashable()
    for _ in range(STEPS):
        assert net(torch.zeros(1)).tolist() == [1.0]


def test_modules_and_optimizers_are_freed() -> None:
    jit(True)
    net = classifier()
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        net(torch.ones(2, 6)).sum().backward()
        update.step()
    gone = [weakref.ref(net), weakref.ref(update)]
    del net, update
    gc.collect()
    assert [r() for r in gone] == [None, None]


def test_threads_call_one_module() -> None:
    jit(True)
    net = classifier()
    x = torch.randn(3, 6)
    wanted = net._call_impl(x).tolist()
    found: list[Any] = []
    threads = [Thread(target=lambda: found.extend(net(x).tolist() == wanted for _ in range(STEPS))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * (4 * STEPS)


def test_the_variable_turns_it_on() -> None:
    program = (
        "import tracecomp as t; from tracecomp.compiled import hot_modules\n"
        "net = t.nn.Linear(2, 2)\n"
        f"for _ in range({STEPS}): net(t.ones(2))\n"
        "print(net in hot_modules._compiled)"
    )
    for value, said in (("1", "True"), ("0", "False")):
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "TRACECOMP_JIT": value}
        )
        assert run.stdout.strip() == said, run.stderr
