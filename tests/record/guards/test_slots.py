"""Compiled programs whose attributes, globals and containers hold other tensors from call to call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import tracecomp as torch
from tracecomp import nn

shared = torch.zeros(3)


class Holder:
    """A user's object."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class Recurrent(nn.Module):
    """Carries its hidden state over calls, as truncated backpropagation through time does."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4)
        self.out = nn.Linear(4, 2)
        self.hidden: Any = None

    def forward(self, x: Any) -> Any:
        y, hidden = self.rnn(x, self.hidden)
        self.hidden = tuple(t.detach() for t in hidden)
        return self.out(y)


def same(make: Callable[[], tuple[Callable[..., Any], Callable[[], Any]]], recordings: int, calls: int = 7) -> None:
    """Two copies of a program, one compiled, called alike: equal results and equal contents of its places."""
    (eager, seen_eager), (other, seen_compiled) = make(), make()
    compiled = torch.compile(other)
    for n in range(calls):
        x = torch.arange(2.0) + n
        assert eager(x).tolist() == compiled(x).tolist()
        assert _plain(seen_eager()) == _plain(seen_compiled())
    assert compiled.recordings == recordings
    assert len(compiled.graphs) == 1


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]


def test_hidden_state_of_a_module_over_training_steps() -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = Recurrent()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            opt.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss

        run = torch.compile(step) if compiled else step
        torch.manual_seed(1)
        found = [run(torch.randn(5, 2, 3), torch.randn(5, 2, 2)).item() for _ in range(8)]
        if compiled:
            assert run.recordings <= 3, run.misses  # no state yet; a new one; the state that stays
            assert len(run.graphs) <= 2
        return found

    assert losses(True) == pytest.approx(losses(False), abs=1e-6)


def test_attribute() -> None:
    def make() -> Any:
        o = Holder(h=torch.zeros(2))

        def step(x: Any) -> Any:
            o.h = o.h * 0.5 + x
            return o.h * 2

        return step, lambda: o.h

    same(make, recordings=2)


def test_global() -> None:
    def step(x: Any) -> Any:
        global shared
        shared = shared * 0.5 + x
        return shared.sum()

    c = torch.compile(step)
    expected = shared.tolist()
    for n in range(6):
        expected = [0.5 * e + n for e in expected]
        assert c(torch.full((3,), float(n))).item() == sum(expected)
        assert shared.tolist() == expected
    assert c.recordings == 2


def test_closure_variable() -> None:
    def make() -> Any:
        h = torch.zeros(2)

        def step(x: Any) -> Any:
            nonlocal h
            h = h + x
            return h.sum()

        return step, lambda: h

    same(make, recordings=2)


def test_lists_that_are_changed_stay_the_same_objects_and_values_can_be_shifted() -> None:
    def make() -> Any:
        o = Holder(items=[torch.zeros(2), torch.ones(2)], last=torch.zeros(2), count={"a": torch.zeros(2)})
        items = o.items

        def step(x: Any) -> Any:
            o.last = o.items[0]
            o.items[0] = o.items[1] + x
            o.items[1] = x
            o.count["a"] = o.count["a"] + o.last
            return o.last.sum()

        return step, lambda: [o.items, o.last, o.count, items]

    same(make, recordings=2)


def test_a_dictionary_of_many_averages() -> None:
    def make() -> tuple[Callable[..., Any], Callable[[], Any]]:
        shadow = {f"weight{n}": torch.full((2,), float(n)) for n in range(100)}

        def step(x: Any) -> Any:
            for name in shadow:
                shadow[name] = 0.9 * shadow[name] + 0.1 * x
            return x.sum()

        return step, lambda: shadow

    same(make, recordings=2)


def test_a_change_in_a_long_list_is_noticed() -> None:
    weights = [1.0] * 100
    compiled = torch.compile(lambda x: x * weights[99])
    x = torch.ones(2)
    assert [compiled(x).tolist() for _ in range(3)] == [[1.0, 1.0]] * 3
    weights[99] = 2.0
    assert compiled(x).tolist() == [2.0, 2.0]


def test_a_new_list_each_time_is_a_new_object() -> None:
    o = Holder(items=[torch.zeros(2)])

    @torch.compile
    def step(x: Any) -> Any:
        o.items = [o.items[0] + x]
        return x

    seen = []
    for _ in range(4):
        step(torch.ones(2))
        seen.append(o.items)
    assert [s[0].tolist() for s in seen] == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_buffer_of_a_module() -> None:
    def make() -> Any:
        m = nn.Module()
        m.register_buffer("mean", torch.zeros(2))

        def step(x: Any) -> Any:
            m.mean = 0.9 * m.mean + 0.1 * x
            return x - m.mean

        return step, lambda: m.state_dict()

    same(make, recordings=2)


def test_tensors_that_the_caller_exchanges_are_read_anew() -> None:
    o = Holder(batch=torch.zeros(2))
    double = torch.compile(lambda: o.batch * 2)
    for n in range(6):
        o.batch = torch.full((2,), float(n))
        assert double().tolist() == [2 * n, 2 * n]
    assert double.recordings == 2
    o.batch = torch.ones(3)
    assert double().tolist() == [2, 2, 2]
    o.batch = torch.ones(2)
    assert double().tolist() == [2, 2]
    assert double.recordings == 3


def test_a_place_that_holds_an_argument() -> None:
    o = Holder(held=torch.zeros(2))

    @torch.compile
    def add(x: Any) -> Any:
        return o.held + x

    x = torch.ones(2)
    for held in (torch.ones(2), torch.ones(2) * 2, x, torch.ones(2) * 3, x):
        o.held = held
        assert add(x).tolist() == (held + x).tolist()


def test_memory_that_is_written_and_held_in_a_place() -> None:
    weight = torch.zeros(2)
    o = Holder(part=torch.ones(2))

    @torch.compile
    def step() -> Any:
        weight.add_(1)
        return o.part * 1

    for part in (torch.ones(2), torch.ones(2) * 2, torch.ones(2) * 3):
        o.part = part
        assert step().tolist() == part.tolist()
    o.part = weight[:]
    assert step().tolist() == weight.tolist()


def test_gradients_of_what_a_place_holds() -> None:
    o = Holder(scale=torch.ones(2, requires_grad=True))
    f = torch.compile(lambda x: (o.scale * x).sum())
    for n in range(1, 5):
        o.scale = torch.full((2,), float(n), requires_grad=True)
        f(torch.tensor([1.0, 2.0])).backward()
        assert o.scale.grad.tolist() == [1, 2]
    assert f.recordings == 2


def test_state_with_history_that_was_used() -> None:
    o = Holder(h=torch.zeros(2))
    w = torch.ones(2, requires_grad=True)

    @torch.compile
    def step(x: Any) -> Any:
        w.grad = None
        o.h = o.h.detach() * w + x
        o.h.sum().backward()
        return o.h.detach() * 1

    for n in range(1, 6):
        assert step(torch.ones(2)).tolist() == [n, n]
        assert w.grad.tolist() == [n - 1, n - 1]
        assert o.h.requires_grad
    assert step.recordings == 2
    with pytest.raises(RuntimeError, match="second time"):
        o.h.sum().backward()


def test_a_path_not_taken_leaves_places_alone() -> None:
    o = Holder(h=torch.zeros(2))

    @torch.compile
    def step(x: Any) -> Any:
        if x.sum() > 0:
            o.h = o.h + x
        return o.h * 1

    expected = 0.0
    for n in (1.0, -1.0, 2.0, -2.0, 3.0, -1.0):
        expected += max(n, 0.0)
        assert step(torch.full((2,), n)).tolist() == [expected, expected]
        assert o.h.tolist() == [expected, expected]


def test_an_attribute_that_object_sets_on_a_tensor_is_set_at_every_call() -> None:
    kept: Any = torch.zeros(2)

    def step(x: Any) -> Any:
        object.__setattr__(kept, "last", x * 2)
        return x

    c = torch.compile(step, fullgraph=True)
    for n in range(6):
        c(torch.full((2,), float(n)))
        assert kept.last.tolist() == [2 * n, 2 * n]
    assert c.recordings <= 2


def test_results_that_are_leaves_require_grad_and_have_their_gradients() -> None:
    @torch.compile
    def f(x: Any) -> Any:
        z = (x * 2).detach().requires_grad_()
        (z * z).sum().backward()
        return z

    for n in range(4):
        z = f(torch.full((2,), float(n)))
        assert z.requires_grad
        assert z.is_leaf
        assert z.grad.tolist() == [4 * n, 4 * n]


class Momentum(torch.optim.Optimizer):
    """An optimizer as users write them: counters and new tensors, in ``state`` under the parameter."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                if not kept:
                    kept["steps"], kept["mean"] = 0, torch.zeros_like(p)
                kept["steps"] += 1
                kept["mean"] = 0.9 * kept["mean"] + 0.1 * p.grad
                p -= group["lr"] * kept["mean"] / (1 - 0.9 ** kept["steps"])


def test_optimizers_with_state_of_their_own_and_a_schedule() -> None:
    def run(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        opt = Momentum(model.parameters(), 0.1)

        def step(x: Any) -> Any:
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss.detach()

        fn = torch.compile(step) if compiled else step
        found = []
        for n in range(8):
            found += [float(fn(torch.ones(2, 3) * n)), *[float(opt.state[p]["steps"]) for p in model.parameters()]]
            found += [v for p in model.parameters() for t in (p, opt.state[p]["mean"]) for v in t.flatten().tolist()]
            opt.param_groups[0]["lr"] *= 0.5
        if compiled:
            assert fn.recordings <= 4, fn.misses
            assert len(fn.graphs) == 1
        return found

    assert run(True) == pytest.approx(run(False), abs=1e-6)


def test_counters_in_a_defaultdict() -> None:
    seen = Holder(counts=defaultdict(int))

    def step(x: Any) -> Any:
        seen.counts["calls"] += 1
        return x * seen.counts["calls"]

    c = torch.compile(step)
    for n in range(8):
        assert c(torch.ones(3)).tolist() == [n + 1.0] * 3
        assert seen.counts == {"calls": n + 1}
        assert seen.counts.default_factory is int
    assert c.recordings <= 4, c.misses


def test_counters_in_a_container_of_a_users_type_count() -> None:
    class Counts(dict):  # type: ignore[type-arg]
        pass

    seen = Holder(counts=Counts(calls=0))

    def step(x: Any) -> Any:
        seen.counts["calls"] += 1
        return x * seen.counts["calls"]

    c = torch.compile(step)
    for n in range(6):
        assert c(torch.ones(3)).tolist() == [n + 1.0] * 3
    assert c.recordings <= 2 and type(seen.counts["calls"]) is int


def test_a_dictionary_with_other_tensors_as_keys_is_another() -> None:
    held = Holder(names={torch.ones(2): 1.0})

    def step(x: Any) -> Any:
        return x * sum(held.names.values())

    c = torch.compile(step)
    for value in (1.0, 1.0, 2.0, 3.0):
        held.names = {torch.ones(2): value}
        assert c(torch.ones(3)).tolist() == [value] * 3


class Codebook(nn.Module):
    """A codebook by moving averages that is replaced, as a parameter, in every call (VQ-VAE)."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = nn.Parameter(torch.ones(2))
        self.codes = nn.Embedding(2, 1)

    def forward(self, x: Any) -> Any:
        self.sums = nn.Parameter(self.sums * 0.5 + x)
        self.codes.weight = nn.Parameter(self.sums[:, None] / 2)
        return self.codes.weight.detach().sum() * x


def test_parameters_that_every_call_replaces_stay_parameters() -> None:
    def make() -> tuple[Callable[..., Any], Callable[[], Any]]:
        module = Codebook()
        return module, lambda: [p.requires_grad * p for p in module.parameters()]

    same(make, recordings=2)
    compiled = torch.compile(lambda x: (nn.Parameter(x * 2), nn.Parameter(x + 1, requires_grad=False), x * 3))
    for _ in range(4):
        results = compiled(torch.ones(2))
        assert [type(t) for t in results] == [nn.Parameter, nn.Parameter, torch.Tensor]
        assert [t.requires_grad for t in results] == [True, False, False]
