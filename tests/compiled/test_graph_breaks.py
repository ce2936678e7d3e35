"""Programs that cannot be one graph run as Python with compiled parts, and give what they give without."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import numpy_reference
from tracecomp import nn, optim
from tracecomp.base.errors import CaptureError
from tracecomp.compiled import source_trees

Program = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
PROGRAMS: dict[str, Callable[[], Program]] = {}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def vectors(n: int) -> tuple[Any, ...]:
    return (torch.arange(6.0) / 7 + n,)


@program
def numpy_in_the_middle() -> Program:
    def f(x: Any) -> Any:
        y = torch.sin(x) * 2
        z = np.cumsum(y.numpy())
        w = torch.from_numpy(z)
        return (w + y).sum() * 3

    return f, vectors


@program
def two_breaks_that_are_found_one_after_the_other() -> Program:
    seen: list[str] = []

    def f(x: Any) -> Any:
        y = x.exp()
        total = y.sum()
        seen.append(time.strftime("%Y") * 0)
        mean = y.mean()
        if len(seen) > 2:
            seen.append(str(np.float64(random.random() * 0)))
        return total, mean, x.numpy().sum(), total + mean

    return f, vectors


@program
def numpy_in_a_branch_of_a_loop() -> Program:
    def f(x: Any) -> Any:
        kept = []
        for i in range(4):
            x = torch.cos(x) * (i + 1)
            if i % 2:
                kept.append(float(x.numpy()[0]))
            kept.append(x.sum())
        return x, kept

    return f, vectors


@program
def a_random_number() -> Program:
    rng = random.Random(3)

    def f(x: Any) -> Any:
        y = x * 2
        return y * rng.random() + rng.randint(1, 9)

    return f, vectors


@program
def numbers_of_numpy() -> Program:
    rng = np.random.default_rng(4)

    def mixup(x: Any) -> Any:
        lam = rng.beta(0.4, 0.4)
        order = rng.permutation(6)
        return lam * x + (1 - lam) * x[torch.from_numpy(order)]

    return mixup, vectors


@program
def a_method_with_a_private_name() -> Program:
    class Model:
        def __init__(self) -> None:
            self.__scale = 3.0
            self.seen: list[float] = []

        def __twice(self, x: Any) -> Any:
            return x + x

        def run(self, x: Any) -> Any:
            y = self.__twice(torch.exp(-x)) * self.__scale
            self.seen.append(float(y.numpy().max()))
            z = y + len(self.seen)
            return self.__twice(z) - self.seen[-1]

    return Model().run, vectors


@program
def a_module_that_reads_values() -> Program:
    class Norm(nn.Module):
        def forward(self, x: Any) -> Any:
            x = x / np.abs(x.detach().numpy()).max()
            return torch.tanh(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), Norm(), nn.Linear(5, 2))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        opt.step()
        return loss

    return step, lambda n: (torch.arange(12.0).reshape(2, 6) / 7 + n,)


@program
def a_value_that_steers() -> Program:
    def f(x: Any) -> Any:
        total = float((x * x).sum())
        scaled = x / total
        text = f"{total:.3f}"
        return scaled, len(text), text

    return f, vectors


@program
def returns_in_branches() -> Program:
    def f(x: Any) -> Any:
        y = x * 2
        if float(y.numpy()[0]) > 3:
            z = torch.sin(y)
            return z
        for k in range(3):
            y = y + k
            if k == 1 and y.numpy()[0] > 2:
                return y * 10
        return y

    return f, vectors


@program
def variables_that_may_not_be_set() -> Program:
    def f(x: Any) -> Any:
        y = x + 1
        if y.numpy()[0] > 2:
            extra = torch.cos(y)
        y = y * 2
        try:
            return y + extra
        except UnboundLocalError:
            return y - 1

    return f, vectors


@program
def loops_left_early() -> Program:
    def f(x: Any) -> Any:
        done = 0
        while True:
            x = x * 2 + 1
            done += 1
            if x.numpy().sum() > 100:
                break
            if done % 2:
                continue
            x = x - 0.5
        return x, done

    return f, vectors


@program
def comprehensions_and_inner_functions() -> Program:
    def f(x: Any) -> Any:
        scale = 2.0

        def twice(t: Any) -> Any:
            return t * scale

        parts = [twice(x + k) for k in range(3)]
        first = parts[0].numpy().sum()
        scale = 3.0
        return sum(parts) + twice(x) + float(first)

    return f, vectors


@program
def lists_that_grow() -> Program:
    history: list[Any] = []

    def f(x: Any) -> Any:
        history.append(x.mean())
        return torch.stack(history).sum() * x

    return f, vectors


@program
def a_cache_that_grows() -> Program:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(6, 6)
            self.keys: Any = None

        def forward(self, x: Any) -> Any:
            k = self.q(x)[None]
            self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=0)
            return torch.softmax(self.keys @ x, 0) @ self.keys

    torch.manual_seed(0)
    with torch.no_grad():
        model = Attention()

    def step(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    return step, vectors


@program
def the_mode_of_a_model_changes() -> Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))

    def f(x: Any) -> Any:
        y = model(x)
        model.train(not model.training)
        return y.sum(), model.training

    return f, lambda n: (torch.arange(12.0).reshape(2, 6) / 7 + n,)


@program
def lbfgs_inside() -> Program:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    opt = optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)

    def step(x: Any) -> Any:
        def closure() -> Any:
            opt.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            return loss

        before = (model(x) ** 2).mean()
        opt.step(closure)
        return before, (model(x) ** 2).mean()

    return step, lambda n: (torch.arange(12.0).reshape(2, 6) / 7 + n,)


@program
def an_iterator_from_outside() -> Program:
    batches = iter([torch.full((6,), float(k)) for k in range(40)])

    def f(x: Any) -> Any:
        y = x * 2
        batch = next(batches)
        return (y + batch).sum()

    return f, vectors


@program
def an_actor_and_a_critic() -> Program:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine = nn.Linear(6, 8)
            self.action, self.value = nn.Linear(8, 2), nn.Linear(8, 1)
            self.saved: list[tuple[Any, Any]] = []
            self.rewards: list[float] = []

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.affine(x))
            return torch.softmax(self.action(x), dim=-1), self.value(x)

    torch.manual_seed(0)
    model = Policy()
    opt = optim.Adam(model.parameters(), lr=0.01)

    def select(state: Any) -> Any:
        probs, value = model(state)
        m = torch.distributions.Categorical(probs)
        action = m.sample()
        model.saved.append((m.log_prob(action), value))
        return action.item()

    def finish() -> Any:
        returns: list[Any]
        total, losses, returns = 0.0, [], []
        for r in model.rewards[::-1]:
            total = r + 0.99 * total
            returns.insert(0, total)
        wanted = torch.tensor(returns)
        for (log_prob, value), want in zip(model.saved, wanted):  # noqa: B905
            losses.append(-log_prob * (want - value.item()) + nn.functional.smooth_l1_loss(value, want[None]))
        opt.zero_grad()
        loss = torch.stack(losses).sum()
        loss.backward()
        opt.step()
        del model.rewards[:]
        del model.saved[:]
        return loss.item()

    def episode(n: int) -> Any:
        for k in range(3 + n % 2):
            action = select(torch.arange(6.0) / 5 + k)
            model.rewards.append(1.0 - action)
        return finish()

    return episode, lambda n: (n,)


@program
def a_schedule_that_steps_twice_in_a_call() -> Program:
    w = nn.Parameter(torch.ones(3))
    opt = optim.SGD([w], lr=0.1)
    schedule = optim.lr_scheduler.StepLR(opt, 1, 0.5)

    def step(x: Any) -> Any:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        schedule.step()
        return w.detach().clone()

    return lambda x: [step(x), step(x + 1), step(x)], lambda n: (torch.arange(3.0) + n,)


@program
def an_object_that_cannot_be_looked_at() -> Program:
    class Weird(list[float]):
        def __len__(self) -> int:
            raise TypeError("no length")

    weird = Weird([2.0])

    def f(x: Any) -> Any:
        try:
            return x * len(weird)
        except TypeError:
            return x * weird[0]

    return f, vectors


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _assert_same(a: Any, b: Any, where: str) -> None:
    a, b = _plain(a), _plain(b)
    if isinstance(a, list):
        assert len(a) == len(b), where
        for x, y in zip(a, b, strict=True):
            _assert_same(x, y, where)
    elif isinstance(a, str):
        assert a == b, where
    else:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=where)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_in_parts_gives_what_it_gives_without(name: str) -> None:
    wanted = []
    for reference in (numpy_reference(), nullcontext()):
        eager, arguments = PROGRAMS[name]()
        torch.manual_seed(5)
        with reference:
            wanted.append([_plain(eager(*arguments(n))) for n in range(6)])
    other, arguments = PROGRAMS[name]()
    torch.manual_seed(5)
    compiled = torch.compile(other, backend="interpret")
    for n in range(6):
        found = compiled(*arguments(n))
        for want in wanted:
            _assert_same(found, want[n], f"{name}, call {n}\n{compiled.explain()}")


def test_calls_beyond_the_most_recordings_go_on_in_parts() -> None:
    eager, _ = PROGRAMS["lists_that_grow"]()
    other, _ = PROGRAMS["lists_that_grow"]()
    compiled = torch.compile(other, backend="interpret")
    for n in range(40):
        _assert_same(compiled(*vectors(n)), eager(*vectors(n)), f"call {n}")
    assert "graph break: " in compiled.explain().text(everything=True) and compiled.recordings < 40


def test_what_stands_between_breaks_is_compiled() -> None:
    def f(x: Any) -> Any:
        a = torch.sin(x) + 1
        total = float(a.numpy().sum())
        b = torch.cos(a) * 2
        return b * b + total

    compiled = torch.compile(f)
    for n in range(4):
        assert torch.allclose(compiled(*vectors(n)), f(*vectors(n)), rtol=1e-6)
    text = compiled.explain().text(everything=True)
    assert "graph break: the program calls numpy()" in text and "test_graph_breaks.py" in text
    assert "1 sin" in text and "1 cos" in text


def test_one_warning_says_why_and_where() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        time.time()
        return y * 2

    compiled = torch.compile(f, backend="interpret")
    words = r"graph break in f: the program (calls|may call) time.time, .*test_graph_breaks.py"
    with pytest.warns(UserWarning, match=words) as got:
        for n in range(4):
            compiled(*vectors(n))
    assert len(got) == 1


def test_fullgraph_raises() -> None:
    def f(x: Any) -> Any:
        return x * time.time()

    with pytest.raises(CaptureError, match=r"(calls|may call) time.time, .*, at .*test_graph_breaks.py:\d+"):
        torch.compile(f, fullgraph=True)(torch.ones(2))


def test_errors_name_the_lines_of_the_program() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        y.numpy()
        z = y @ y[:2]
        return z

    compiled = torch.compile(f, backend="interpret")
    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            compiled(torch.ones(3))
        lines = [entry.lineno + 1 for entry in caught.traceback if str(entry.path) == __file__]
        assert f.__code__.co_firstlineno + 3 in lines


def test_functions_without_source_run_eagerly() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec("def f(x):\n    y = x * 2\n    return torch.from_numpy(y.numpy() + 1)", space)
    compiled = torch.compile(space["f"])
    for n in range(3):
        assert torch.equal(compiled(*vectors(n)), space["f"](*vectors(n)))
    assert "runs eagerly: the program calls numpy()" in compiled.explain().text(everything=True)


def test_the_source_of_a_function_is_found_only_if_it_is_what_runs() -> None:
    def function(x: Any) -> Any:
        return x + 1

    f: Any = function
    assert source_trees.tree_of(f) is not None
    changed = f.__code__.replace(co_consts=(None, 2))
    f.__code__ = changed
    assert source_trees.tree_of(f) is None


def test_many_kinds_of_calls_keep_their_recordings() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="interpret", dynamic=False)
    sizes = [*range(1, 13), *range(1, 13), *range(13, 25), *range(1, 25)]
    for n in sizes:
        assert compiled(torch.ones(n)).tolist() == [3.0] * n
    assert compiled.recordings == 24 and compiled.parts is None


def test_a_disabled_function_runs_as_python_at_every_call() -> None:
    ran = []

    @torch.compiler.disable(reason="it counts")
    def counted(x: Any) -> Any:
        ran.append(torch.compiler.is_compiling())
        return x + len(ran)

    def f(x: Any) -> Any:
        y = x * 2
        z = counted(y)
        return z * 3

    compiled = torch.compile(f)
    assert [compiled(torch.ones(1)).item() for _ in range(4)] == [9, 12, 15, 18]
    assert ran == [False] * 4 and compiled.parts.used()
    with pytest.raises(CaptureError, match=r"calls counted, which is excluded from graphs \(it counts\)"):
        torch.compile(f, fullgraph=True)(torch.ones(1))
    assert counted(torch.ones(1)).item() == 6


def test_a_graph_can_be_broken_by_hand_and_explained() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break("by hand")
        return y + 1

    found = torch._dynamo.explain(f)(torch.ones(2))
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    assert ["mul" in ops for ops in found.ops_per_graph] == [True, False] and found.op_count >= 2
    assert "by hand" in found.break_reasons[0].reason
    with pytest.raises(CaptureError, match="graph_break"):
        torch.compile(f, fullgraph=True)(torch.ones(2))
    assert f(torch.ones(2)).tolist() == [3, 3]


def test_variables_deleted_in_blocks_have_no_value_afterwards() -> None:
    def deleted(x: Any, drop: bool) -> Any:
        y = x * 2
        if drop:
            del y
        torch._dynamo.graph_break()
        try:
            return y + x
        except UnboundLocalError:
            return x * 3

    compiled = torch.compile(deleted)
    for drop in (True, False, True, True, False):
        x = torch.ones(2)
        assert torch.equal(compiled(x, drop), deleted(x, drop))


def test_a_piece_with_a_loop_is_cut_again() -> None:
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x.sum()))
        return x

    def program(x: Any) -> Any:
        out = []
        for step in range(2):
            out.append(note(x * (step + 1)))
        out.append(x * float(np.random.rand()))
        return out[:2]

    compiled = torch.compile(program)
    for n in range(8):
        x = torch.arange(3.0) + n
        assert [t.tolist() for t in compiled(x)] == [t.tolist() for t in program(x)]


def test_modules_in_parts_heed_later_hooks_and_methods() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            h = self.layer(x)
            began = time.time()
            return h * 2 if began else h

    module = Timed()
    compiled = torch.compile(module)
    x = torch.ones(1, 2)

    def check() -> None:
        for _ in range(3):
            assert torch.equal(compiled(x), module(x))

    check()
    for register in (module.register_forward_hook, module.register_forward_pre_hook):
        calls: list[int] = []
        handle = register(lambda *given, calls=calls: calls.append(1))
        check()
        assert len(calls) == 6
        handle.remove()
        check()
    module.forward = lambda x: x * 7  # type: ignore[method-assign]
    check()
