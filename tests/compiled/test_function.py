"""Programs compiled against the same programs run eagerly: results and state step by step, number of recordings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
import tracecomp.utils.checkpoint
from tests.compiled.table import Table
from tests.references import numpy_reference
from tracecomp import nn, optim

BACKENDS = ["interpret", "native"]
program = Table()


def rand(*shape: int, seed: int = 0) -> Any:
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def batches(count: int, *shape: int) -> list[Any]:
    return [(rand(*shape, seed=10 + i),) for i in range(count)]


def pairs(count: int, x: tuple[int, ...], y: tuple[int, ...]) -> list[Any]:
    return [(rand(*x, seed=10 + i), rand(*y, seed=90 + i)) for i in range(count)]


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@program()
def pure_function():
    return lambda x: (x.exp() * 2).sum(1), batches(3, 4, 5), []


@program()
def nested_arguments_and_results():
    def step(data, *, scale):
        return {"a": data["x"] * scale, "b": [data["y"][0] + 1, (data["y"][1],)], "n": 3}

    calls = [({"x": rand(2, seed=i), "y": (rand(3, seed=i), rand(1, seed=i))},) for i in range(3)]
    return lambda d: step(d, scale=2.0), calls, []


@program(recordings=2)
def shapes_record_again():
    return lambda x: x * 2, [(rand(3),), (rand(4),), (rand(3),), (rand(4),)], []


@program(recordings=2)
def scalars_record_again():
    return lambda x, k: x * k, [(rand(3), 2.0), (rand(3), 3.0), (rand(3, seed=1), 2.0)], []


@program()
def captured_weight_changes():
    w = rand(3)

    def step(x):
        return x * w

    calls = batches(4, 3)
    return step, calls, [w], lambda i: w.mul_(2)


@program()
def sgd_step():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return step, pairs(5, (6, 4), (6, 2)), list(model.parameters())


def training(make_optimizer: Callable[[Any], Any], make_model: Callable[[], Any] = mlp, **extra: Any) -> Any:
    model = make_model()
    opt = make_optimizer(model.parameters())

    def step(x, y):
        opt.zero_grad(**extra)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return step, pairs(5, (6, 4), (6, 2)), list(model.parameters())


@program(recordings=2)
def momentum():
    return training(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))


@program()
def adam():
    return training(lambda p: optim.Adam(p, lr=0.01))


@program()
def adamw():
    return training(lambda p: optim.AdamW(p, lr=0.01))


@program(recordings=2)
def zeroed_gradients():
    return training(lambda p: optim.SGD(p, lr=0.1), set_to_none=False)


@program()
def scheduler_changes_rate():
    model = mlp()
    opt = optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    def between(i):
        opt.param_groups[0]["lr"] *= 0.5

    return step, pairs(6, (6, 4), (6, 2)), list(model.parameters()), between


@program(recordings=2)
def gradient_accumulation():
    model = mlp()

    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    return step, pairs(4, (6, 4), (6, 2)), [lambda: [p.grad for p in model.parameters()]]


@program()
def gradients_readable():
    model = mlp()

    def step(x, y):
        model.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss.detach()

    return step, pairs(4, (6, 4), (6, 2)), [lambda: [p.grad for p in model.parameters()]]


@program()
def clipping():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
        return loss, norm

    return step, pairs(4, (6, 4), (6, 2)), list(model.parameters())


@program()
def averaged_copy():
    model, teacher = mlp(), mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        with torch.no_grad():
            target = teacher(x)
        loss = ((model(x) - y) ** 2).mean() + ((model(x) - target) ** 2).mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, b in zip(teacher.parameters(), model.parameters(), strict=True):
                a.mul_(0.9).add_(b, alpha=0.1)
        return loss

    return step, pairs(4, (6, 4), (6, 2)), [*model.parameters(), *teacher.parameters()]


@program()
def two_optimizers():
    gen, disc = nn.Linear(3, 4), nn.Linear(4, 1)
    g_opt, d_opt = optim.SGD(gen.parameters(), lr=0.1), optim.SGD(disc.parameters(), lr=0.1)

    def step(z, real):
        d_opt.zero_grad()
        fake = gen(z)
        d_loss = torch.relu(1 - disc(real)).mean() + torch.relu(1 + disc(fake.detach())).mean()
        d_loss.backward()
        d_opt.step()
        g_opt.zero_grad()
        g_loss = -disc(gen(z)).mean()
        g_loss.backward()
        g_opt.step()
        return d_loss, g_loss

    return step, pairs(4, (6, 3), (6, 4)), [*gen.parameters(), *disc.parameters()]


@program()
def gradient_penalty():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        x = x.clone().requires_grad_()
        opt.zero_grad()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = ((g.norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return step, batches(4, 6, 4), list(model.parameters())


@program()
def maml_inner_loop():
    w = rand(4, 2).requires_grad_()

    def step(x, y):
        fast = w
        for _ in range(3):
            loss = ((x @ fast - y) ** 2).mean()
            (g,) = torch.autograd.grad(loss, fast, create_graph=True)
            fast = fast - 0.1 * g
        outer = ((x @ fast - y) ** 2).mean()
        w.grad = None
        outer.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return outer

    return step, pairs(3, (6, 4), (6, 2)), [w]


@program()
def hessian_vector_product():
    w = rand(4).requires_grad_()

    def step(v):
        (g,) = torch.autograd.grad((w**3).sum() * w.sum(), w, create_graph=True)
        (h,) = torch.autograd.grad(g, w, v)
        return h

    return step, batches(3, 4), [w]


@program()
def custom_function():
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, g):
            return g * 7

    w = rand(5).requires_grad_()

    def step(x):
        w.grad = None
        Clamp.apply(w * x).sum().backward()
        return w.grad.clone()

    return step, batches(3, 5), [w]


@program()
def hooks_change_gradients():
    w = rand(5).requires_grad_()
    w.register_hook(lambda g: g * 10)

    def step(x):
        w.grad = None
        y = w * x
        y.register_hook(lambda g: g.clamp(max=0.5))
        (y * y).sum().backward()
        return w.grad.clone()

    return step, batches(3, 5), [w]


@program()
def batch_norm_buffers():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return step, pairs(4, (6, 4), (6, 2)), [*model.parameters(), *model.buffers()]


@program(recordings=2)
def train_and_eval():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))

    def step(x):
        return model(x).detach()

    def between(i):
        model.train(i % 2 == 0)

    return step, batches(6, 6, 4), list(model.buffers()), between


@program()
def dropout_draws_eager_numbers():
    def step(x):
        return nn.functional.dropout(x, 0.5), torch.rand(3), torch.randn(2)

    return step, batches(4, 6, 4), []


@program(recordings=2)
def freezing_midway():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    def between(i):
        if i == 2:
            model[0].requires_grad_(False)

    return step, pairs(6, (6, 4), (6, 2)), list(model.parameters()), between


@program()
def weights_loaded_between():
    model, other = mlp(), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def between(i):
        if i == 1:
            model.load_state_dict(other.state_dict())

    return lambda x: model(x).detach(), batches(4, 6, 4), list(model.parameters()), between


@program()
def data_replaced_between():
    w = rand(3).requires_grad_()

    def between(i):
        w.data = w.data * 2

    return lambda x: (x * w).detach(), batches(4, 3), [w], between


@program()
def in_place_on_argument():
    def step(x):
        x.mul_(2)
        x[1:].add_(1)
        return x

    return step, batches(3, 4), []


@program()
def in_place_on_views_of_state():
    buffer = torch.zeros(4, 5)

    def step(x):
        row = buffer[1]
        row.add_(x)
        buffer[:, 2] += 1
        buffer[2:, 1:3] = row[:2]
        return row * 2, buffer.sum()

    return step, batches(3, 5), [buffer]


@program()
def overlapping_views():
    buffer = torch.zeros(6)

    def step(x):
        a, b = buffer[:4], buffer[2:]
        a.add_(x)
        b.mul_(2)
        a.sub_(1)
        return a.clone(), b.clone()

    return step, batches(3, 4), [buffer]


@program()
def mask_in_place():
    def step(x):
        y = x * 1
        y[x > 0] = -1.0
        return y

    return step, batches(3, 4, 4), []


@program()
def returns_argument_and_state():
    w = rand(3)

    def step(x):
        return x, w, w[1:], x * w

    return step, batches(3, 3), [w]


@program(recordings=2)
def branch_on_value():
    def step(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    return step, [(rand(3).abs() * s,) for s in (1, 1, -1, 1, -1, -1)], []


@program(recordings=2)
def state_commits_on_the_held_path_only():
    w = torch.zeros(3)

    def step(x):
        w.add_(x)
        if w.sum() > 2:
            w.zero_()
        return w * 1

    return step, [(torch.ones(3) * 0.3,) for _ in range(8)], [w]


@program(recordings=3)
def loop_until_small():
    def step(x):
        n = 0
        while x.norm() > 1:
            x = x / 2
            n += 1
        return x, n

    return step, [(torch.ones(4) * s,) for s in (0.1, 1.5, 3.0, 1.5, 0.2, 3.0)], []


@program(recordings=2)
def item_as_size():
    def step(x, n):
        return x[: int(n)]

    return step, [(rand(5), torch.tensor(k)) for k in (2, 3, 2, 3, 3)], []


@program(recordings=2)
def boolean_indexing():
    def step(x, mask):
        return x[mask] * 2

    masks = [torch.tensor(m) for m in ([1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 1, 0])]
    return step, [(rand(3), m.bool()) for m in masks], []


@program(recordings=2)
def closure_scalar():
    scale = 2.0

    def step(x):
        return x * scale

    def between(i):
        nonlocal scale
        if i == 1:
            scale = 3.0

    return step, batches(4, 3), [], between


@program()
def numpy_arguments():
    def step(a):
        return torch.from_numpy(a) * 2

    return step, [(np.full(3, float(i), np.float32),) for i in range(4)], []


@program()
def data_inside():
    def step(x):
        return x + torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3) * torch.ones(3)

    return step, batches(3, 3), []


@program()
def differentiated_from_outside():
    model = mlp()
    compiled = {}

    def step(x):
        return model(x)

    def use(run, x):
        for p in model.parameters():
            p.grad = None
        x = x.clone().requires_grad_()
        (run(x) ** 2).mean().backward()
        return [x.grad, *[p.grad.clone() for p in model.parameters()]]

    compiled["use"] = use
    return step, batches(4, 6, 4), [], None, use


@program()
def differentiated_from_outside_with_hooks_and_detach():
    w = rand(5).requires_grad_()
    w.register_hook(lambda g: g * 3)

    def step(x):
        h = w * x
        return h * h.detach(), h.sum()

    def use(run, x):
        w.grad = None
        a, b = run(x)
        (a.sum() * 2 + b).backward()
        return [w.grad.clone()]

    return step, batches(4, 5), [], None, use


@program()
def gradient_penalty_from_outside():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2))

    def use(run, x):
        model.zero_grad()
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(run(x).pow(2).sum(), x, create_graph=True)
        ((g * g).sum() + g.sin().sum()).backward()
        return [g.detach(), x.grad, *[p.grad.clone() for p in model.parameters()]]

    return model, batches(4, 6, 4), [], None, use


@program()
def third_derivative_from_outside():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    w = rand(5).requires_grad_()

    def step(x):
        y = w * 1
        y[1:3] = x[1:3] * y[0].clone()
        return (Cube.apply(y) * x.exp() * y.detach()).sum()

    def use(run, x):
        x = x.clone().requires_grad_()
        y, found = run(x), []
        for _ in range(3):
            g, h = torch.autograd.grad(y, (w, x), create_graph=True)
            found += [g.detach(), h.detach()]
            y = (g * h).sum()
        return found

    return step, batches(4, 5), [], None, use


@program()
def argument_written_with_history():
    w = rand(4).requires_grad_()

    def use(run, x):
        w.grad = None
        x = x.clone()
        y = run(x)
        (y * 2 + x.sum()).backward()
        return [x.detach(), y.detach(), w.grad.clone()]

    def step(x):
        x += w
        return (x * x).sum()

    return step, batches(3, 4), [], None, use


@program()
def argument_written_in_a_whole_step():
    w = rand(4).requires_grad_()

    def step(x):
        w.grad = None
        x += w
        loss = (x * x).sum()
        loss.backward()
        return loss, x * 1.0

    return step, batches(3, 4), [lambda: w.grad]


@program()
def mixed_dtypes():
    w = rand(4, 4).requires_grad_()

    def step(x):
        w.grad = None
        y = (x.half() @ w.half()).float().double()
        y.sum().backward()
        return y, w.grad.clone()

    return step, batches(3, 2, 4), [w]


@program()
def tied_weights():
    emb = nn.Embedding(10, 6)
    out = nn.Linear(6, 10, bias=False)
    out.weight = emb.weight
    opt = optim.SGD(emb.parameters(), lr=0.1)

    def step(i):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(out(emb(i)), i)
        loss.backward()
        opt.step()
        return loss

    return step, [(torch.tensor([k, 2, 3]),) for k in range(4)], [emb.weight]


@program()
def recurrent():
    w, u = rand(3, 3).requires_grad_(), rand(4, 3, seed=1).requires_grad_()

    def step(x):
        w.grad = u.grad = None
        h = torch.zeros(2, 3)
        for t in range(x.shape[0]):
            h = torch.tanh(x[t] @ u + h @ w)
        h.sum().backward()
        with torch.no_grad():
            for p in (w, u):
                p.add_(p.grad, alpha=-0.1)
        return h

    return step, batches(3, 5, 2, 4), [w, u]


@program()
def buffer_of_states():
    memory = torch.zeros(3, 4)

    def step(x):
        memory.copy_(torch.cat([memory[1:], x[None]]))
        return memory.mean(0)

    return step, batches(5, 4), [memory]


@program()
def checkpointed():
    model = mlp()

    def step(x):
        model.zero_grad()
        y = tracecomp.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        (y * y).sum().backward()
        return y.detach()

    return step, batches(3, 6, 4), [lambda: [p.grad for p in model.parameters()]]


def values(state: Any) -> list[np.ndarray]:
    """Every tensor of a nested value as an array."""
    if callable(state) and not isinstance(state, torch.Tensor):
        return values(state())
    if state is None:
        return []
    if isinstance(state, dict):
        state = list(state.values())
    if isinstance(state, list | tuple):
        return [a for v in state for a in values(v)]
    return [state.detach().numpy().copy() if isinstance(state, torch.Tensor) else np.asarray(state)]


def run(
    make: Callable[[], Any], wrap: Callable[[Any], Any], numpy_alone: bool = False
) -> tuple[Any, list[list[np.ndarray]]]:
    """The wrapped step, and its results and state after each call."""
    torch.manual_seed(7)
    step, calls, state, *rest = make()
    between = rest[0] if rest else None
    use = rest[1] if len(rest) > 1 else lambda fn, *args: fn(*args)
    fn = wrap(step)
    torch.manual_seed(3)
    history = []
    with numpy_reference() if numpy_alone else nullcontext():
        for i, args in enumerate(calls):
            history.append([*values(use(fn, *args)), *values(state)])
            if between is not None:
                with torch.no_grad():
                    between(i)
    return fn, history


def uncompiled(make: Callable[[], Any]) -> list[list[list[np.ndarray]]]:
    """The history of the step by numpy, which is right, and of eager mode."""
    return [run(make, lambda f: f, numpy_alone)[1] for numpy_alone in (True, False)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("make", "recordings"), program.rows, ids=[m.__name__ for m, _ in program.rows])
def test_compiled_equals_eager(make: Callable[[], Any], recordings: int, backend: str) -> None:
    compiled, got = run(make, lambda f: torch.compile(f, backend=backend))
    for want in uncompiled(make):
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                assert x.dtype == y.dtype
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=f"call {number}")
    assert compiled.recordings == recordings, compiled.misses


def _write_rows(x):
    x[0].detach().zero_()
    x.data[1].mul_(3)
    return x.clone()


def _write_through_aliases_of_aliases(x):
    x.t().detach()[0].detach()[1:].fill_(5)
    return x * 1


def _write_between_aliases(x):
    y = x * 2
    first, second = y.view(-1).detach(), y.detach()
    first[1:].detach().mul_(3)
    del y
    second.t().data.add_(1)
    return first + 0, second + 0


def _write_expanded(x):
    y = x + 1
    y[None].expand(2, *x.shape).detach().zero_()
    return y + x


def _write_through_the_alias_of_an_alias_that_is_returned(x):
    y = x[1].detach()
    y.detach().add_(1)
    return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [
    _write_rows, _write_through_aliases_of_aliases, _write_between_aliases, _write_expanded,
    _write_through_the_alias_of_an_alias_that_is_returned,
])  # fmt: skip
def test_writes_through_aliases_of_views_that_nobody_holds(fn: Callable[..., Any], backend: str) -> None:
    compiled = torch.compile(fn, backend=backend)
    for k in range(4):
        eager, given = rand(2, 3, seed=k), rand(2, 3, seed=k)
        want, have = fn(eager), compiled(given)
        for a, b in zip(want, have, strict=True) if isinstance(want, tuple) else [(want, have)]:
            np.testing.assert_array_equal(b.numpy(), a.numpy())
        np.testing.assert_array_equal(given.numpy(), eager.numpy())
    assert compiled.recordings == 1


def test_writes_to_state_through_an_alias_of_a_row() -> None:
    state = torch.zeros(2, 3)

    def f(x):
        state[0].detach().add_(x)
        return state * 1

    compiled = torch.compile(f)
    for k in range(4):
        assert compiled(torch.ones(3))[0].tolist() == [k + 1.0] * 3
    assert state.tolist() == [[4.0] * 3, [0.0] * 3]
