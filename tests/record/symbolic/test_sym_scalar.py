"""Compiled programs that compute with Python numbers read from tensors or kept in attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.compiled.replay import Plan
from tracecomp.eager_kernels import background


class Meter:
    """Counts and averages, as training loops do."""

    calls = 0

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.recent = [0.0, 0]
        self.t = -7

    def update(self, x: Any) -> Any:
        self.calls += 1
        self.total += x.mean().item() * len(x)
        self.count += len(x)
        self.recent[0] = x.sum().item()
        self.recent[1] -= 1
        self.t += 3
        t = self.t
        return self.total / self.count, t // 4, t % 4, -t, abs(t), t**2, 2.5 - t, self.calls


def both(make: Callable[[], Any], calls: int = 8) -> Any:
    """Call a program and a compiled copy of it alike; the compiled one."""
    eager, compiled = make(), torch.compile(make())
    for n in range(calls):
        x = torch.arange(4.0) * (n - 2)
        one, other = eager(x), compiled(x)
        assert torch.is_tensor(one) or json.dumps(one) == json.dumps(other)
        if torch.is_tensor(one):
            assert one.dtype is other.dtype
            assert one.tolist() == pytest.approx(other.tolist(), rel=1e-6)
    return compiled


def test_item_as_a_result_of_a_training_step() -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> float:
            opt.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss.item()

        run = torch.compile(step) if compiled else step
        torch.manual_seed(1)
        found = [run(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(80)]
        assert all(type(v) is float for v in found)
        if compiled:
            assert run.recordings == 2
            assert len(run.graphs) == 1
        return found

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)


def test_numbers_in_attributes() -> None:
    one, other = Meter(), Meter()
    update = torch.compile(other.update)
    for n in range(9):
        x = torch.arange(4.0) + n
        assert one.update(x) == update(x)
        assert vars(one) == vars(other)
        assert [type(v) for v in vars(one).values()] == [type(v) for v in vars(other).values()]
    assert len(update.graphs) == 1
    other.count = 100  # changed from outside
    one.count = 100
    assert one.update(torch.ones(2)) == update(torch.ones(2))


def test_number_that_scales_a_tensor() -> None:
    def make() -> Any:
        class Schedule:
            t = 0

        s = Schedule()

        def step(x: Any) -> Any:
            s.t += 1
            return x * (1 - 0.9**s.t) + s.t

        return step

    assert len(both(make).graphs) == 2  # the first call finds the number in the class


def test_integer_tensors_stay_integers() -> None:
    def make() -> Any:
        return lambda x: x.to(torch.int32) * x.sum().to(torch.int64).item()

    assert len(both(make).graphs) == 1


def test_comparison_steers_and_the_value_does_not() -> None:
    def make() -> Any:
        def step(x: Any) -> Any:
            total = x.sum().item()
            return x * 0 if total > 3 else x * total

        return step

    assert len(both(make).graphs) == 2


def test_the_value_itself_steers_where_python_needs_it() -> None:
    def step(x: Any) -> Any:
        return x * 0 if math.isnan(x.sum().item()) else x * 2

    c = torch.compile(step)
    for _ in range(4):
        for value in (1.0, math.nan, 2.0):
            x = torch.full((2,), value)
            assert str(c(x)) == str(step(x))
    assert len(c.graphs) == 3  # one per value


def test_division_by_zero_raises_as_in_python() -> None:
    def step(x: Any) -> Any:
        return 1.0 / x.sum().item()

    c = torch.compile(step)
    for n in range(1, 6):
        assert c(torch.full((2,), float(n))) == 1 / (2 * n)
    with pytest.raises(ZeroDivisionError):
        c(torch.zeros(2))
    assert len(c.graphs) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda n, x: torch.clamp(x, max=n), lambda n, x: torch.full((2,), n), lambda n, x: torch.tensor([n, 1.0]),
        lambda n, x: f"{n:.3f}", lambda n, x: round(n, 2), lambda n, x: [n] * int(n), lambda n, x: n.is_integer(),
        lambda n, x: max(n, 3.0), lambda n, x: n // 2, lambda n, x: n % 2, lambda n, x: isinstance(n, float),
        lambda n, x: nn.functional.softplus(x, beta=n), lambda n, x: math.sqrt(n), lambda n, x: {"n": n, "m": [n]},
        lambda n, x: torch.add(x, x, alpha=n), lambda n, x: x**n, lambda n, x: torch.where(x > n, x, n),
    ],
)  # fmt: skip
def test_other_uses_of_a_number(use: Callable[..., Any]) -> None:
    def step(x: Any) -> Any:
        return use(x.sum().item(), x)

    c = torch.compile(step)
    for n in (1.0, 2.0, 1.0, 3.0, 2.0):
        x = torch.full((2,), n)
        assert str(c(x)) == str(step(x))


def test_numbers_kept_in_a_list_behind_a_slot_are_plain_numbers_of_each_call() -> None:
    class Log:
        __slots__ = ("lines",)

        def __init__(self) -> None:
            self.lines: list[Any] = []

    log = Log()

    def step(x: Any) -> Any:
        log.lines.append(x.sum().item())
        return x * 2

    c = torch.compile(step)
    for n in range(8):
        c(torch.full((2,), float(n)))
    assert all(type(v) is float for v in log.lines)
    assert log.lines == [2.0 * n for n in range(8)] and c.recordings <= 2


def test_a_call_that_cannot_be_recorded_to_its_end_returns_plain_numbers() -> None:
    def step(x: Any, leave: bool) -> Any:
        total = x.sum().item()
        if leave:
            np.asarray(x * 2)
        return total, total + 1

    c = torch.compile(step, fullgraph=False)
    for n in range(3):
        c(torch.full((2,), float(n)), False)
    with pytest.warns(UserWarning, match="graph break in"):
        found = c(torch.ones(2), True)
    assert found == (2, 3)
    assert [type(v) for v in found] == [float, float]


def test_an_error_in_the_middle_leaves_plain_numbers() -> None:
    m = Meter()

    def step(x: Any, fail: bool) -> Any:
        m.total += x.sum().item()
        if fail:
            raise ValueError("stop")
        return x

    c = torch.compile(step)
    for _ in range(3):
        c(torch.ones(2), False)
    with pytest.raises(ValueError, match="stop"):
        c(torch.ones(2), True)
    assert type(m.total) is float
    assert m.total == 8


def test_nothing_is_compiled_for_a_float_that_is_followed_from_the_second_call_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background.finish()  # work that other tests left to the background thread makes plans, too
    made = []
    make = Plan.__init__
    monkeypatch.setattr(Plan, "__init__", lambda *args: (made.append(args), make(*args))[1])
    weight = torch.ones(2)

    def step(x: Any) -> float:
        weight.sub_(0.1 * x)
        return weight.sum().item()

    c = torch.compile(step)
    losses = [c(torch.ones(2)) for _ in range(4)]
    assert losses == pytest.approx([1.8, 1.6, 1.4, 1.2])
    assert c.recordings == 2
    assert len(made) == 1


def test_an_argument_that_is_another_number_at_every_call_is_followed() -> None:
    layer = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)

    def step(x: Any, lam: float, *, scale: int) -> Any:
        optimizer.zero_grad()
        loss = ((layer(lam * x + (1 - lam) * x.flip(0)) - scale) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss, lam * 2

    start = {k: v.clone() for k, v in layer.state_dict().items()}
    rng = np.random.default_rng(0)
    calls = [(torch.tensor(rng.standard_normal((4, 3))), float(rng.random()), int(k)) for k in range(80)]
    found = []
    compiled = torch.compile(step)
    for run in (step, compiled):
        layer.load_state_dict(start)
        layer.double()
        found.append([run(x, lam, scale=k) for x, lam, k in calls])
    for (a, m), (b, n) in zip(*found, strict=True):
        np.testing.assert_allclose(b.item(), a.item(), rtol=1e-9)
        assert m == n
    assert compiled.recordings <= 3


@pytest.mark.parametrize("use", [
    lambda x, n: sum(x * k for k in range(n)), lambda x, n: x * math.sqrt(n),
])  # fmt: skip
def test_an_argument_whose_value_is_needed_is_a_constant_again(use: Callable[[Any, int], Any]) -> None:
    x = torch.arange(6.0)
    compiled = torch.compile(use)
    for n in (1, 2, 3, 4, 2, 3, 4, 1, 2, 3, 4):
        np.testing.assert_allclose(compiled(x, n).numpy(), use(x, n).numpy())
    assert compiled.recordings == 5  # one of each value, and the one that asked
    assert all(i.name != "[1]" for g in compiled.graphs for i in g.inputs)


@pytest.mark.parametrize("use", [
    lambda n: divmod(n, 3)[1], lambda n: divmod(10, n)[0], lambda n: math.trunc(n), lambda n: n & 3, lambda n: 6 & n,
    lambda n: n | 8, lambda n: n ^ 1, lambda n: n << 1, lambda n: 1 << n, lambda n: n >> 1, lambda n: ~n,
    lambda n: pow(n, 2, 5), lambda n: pow(2, n), lambda n: [1, 2, 3, 5, 8][n], lambda n: {1: 5, 2: 6}.get(n, 7),
    lambda n: 2 if type(n) is int else 0, lambda n: n.bit_length(), lambda n: int(f"{n}"),
])  # fmt: skip
def test_what_python_does_with_an_integer_that_is_an_argument(use: Callable[[int], int]) -> None:
    compiled = torch.compile(lambda x, n: x * use(n))
    for n in (1, 2, 3, 4, 2, 3):
        assert compiled(torch.ones(2), n).tolist() == [use(n)] * 2


def test_a_float_where_an_integer_belongs_is_refused_as_it_is_eagerly() -> None:
    compiled = torch.compile(lambda x, n: x.roll(n))
    for n in (1.5, 2.5, 3.5):
        with pytest.raises(TypeError, match="must be tuple of ints, not float"):
            compiled(torch.ones(3), n)
    assert compiled(torch.arange(3), 1).tolist() == [2, 0, 1]


def test_an_argument_that_steers_python_makes_a_path_for_each_way() -> None:
    compiled = torch.compile(lambda x, lam: x * lam if lam > 0.5 else x + lam)
    x = torch.arange(3.0)
    for lam in (0.1, 0.9, 0.2, 0.7, 0.3, 0.8, 0.4):
        np.testing.assert_allclose(compiled(x, lam).numpy(), (x * lam if lam > 0.5 else x + lam).numpy())
    assert compiled.recordings <= 4
    assert compiled(x, 2).tolist() == [0.0, 2.0, 4.0]  # an int is another call


def test_numbers_of_frequent_eager_calls_are_not_read_in_recordings() -> None:
    params = [nn.Parameter(torch.ones(3)) for _ in range(64)]
    optimizer = torch.optim.ASGD(params, lr=0.1)  # its state begins eagerly, with the followed rate

    @torch.compile
    def step(x: Any) -> None:
        sum((p * x).sum() for p in params).backward()
        optimizer.step()

    step(torch.ones(3))
    background.finish()
    compiled = torch.compile(lambda x, lam: x + lam)
    for lam in (0.1, 0.2, 0.3, 0.4, 0.5):
        assert compiled(torch.ones(3), lam).tolist() == (torch.ones(3) + lam).tolist()
    assert compiled.recordings == 2


def test_arguments_with_history_are_differentiated_with_the_number_of_their_call() -> None:
    compiled = torch.compile(lambda x, lam: (x**2 * lam).sum())
    for lam in (2.0, 3.0, 4.0, 5.0):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = compiled(x, lam)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        assert g.tolist() == [2 * lam, 4 * lam] and h.tolist() == [2 * lam] * 2
    assert compiled.recordings == 2


@pytest.mark.parametrize("store", [
    lambda x, v: torch.full((3,), v), lambda x, v: torch.full_like(x, v), lambda x, v: x.clone().fill_(v),
    lambda x, v: x.masked_fill(x > 1, v), lambda x, v: torch.where(x > v, x, v), lambda x, v: x.clamp(-v, v),
    lambda x, v: torch.tensor(v) * x, lambda x, v: x.index_fill(0, torch.tensor([1]), v),
    lambda x, v: x.scatter(0, torch.tensor([0, 2]), v),
])  # fmt: skip
def test_followed_numbers_are_stored_in_tensors(store: Callable[[Any, float], Any]) -> None:
    compiled, x = torch.compile(store), torch.arange(3.0)
    for v in (0.25, 0.7, 1.5, 0.1):
        want, got = store(x, v), compiled(x, v)
        assert got.dtype is want.dtype and got.tolist() == want.tolist()
    assert compiled.recordings == 2


def test_matrix_exponentials_take_a_recording_for_each_number_of_squarings() -> None:
    compiled = torch.compile(torch.linalg.matrix_exp)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 4))
    for scale in (0.3, 0.31, 0.32, 0.33, 5.0, 5.1, 5.2):
        want = torch.linalg.matrix_exp(torch.tensor(x * scale))
        np.testing.assert_allclose(compiled(torch.tensor(x * scale)).numpy(), want.numpy(), rtol=1e-9)
    assert compiled.recordings <= 3
