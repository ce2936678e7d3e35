"""Training steps of the kinds people write, compiled against eager."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.table import Table
from tests.compiled.test_function import BACKENDS, batches, mlp, rand, run, training, uncompiled
from tests.references import by_numpy
from tracecomp import nn, optim

F = nn.functional
program = Table()


def fit(model: Any, loss: Callable[..., Any], calls: list[Any], lr: float = 0.1, state: tuple[Any, ...] = ()) -> Any:
    """A plain training step of ``model``; ``loss`` takes the model and the call's arguments."""
    opt = optim.SGD(model.parameters(), lr=lr)

    def step(*args):
        opt.zero_grad()
        value = loss(model, *args)
        value.backward()
        opt.step()
        return value

    return step, calls, [*model.parameters(), *model.buffers(), *state]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step_is_one_graph(name: str) -> None:
    check(lambda: training(OPTIMIZERS[name]), None, "interpret")


@program()
def convolutional_net():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )
    calls = [(rand(5, 1, 8, 8, seed=i), torch.tensor([0, 1, 2, i % 3, 1])) for i in range(3)]
    return fit(model, lambda m, x, y: F.cross_entropy(m(x), y), calls)


@program()
def transformer_layer():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    return fit(model, lambda m, x: m(x).pow(2).mean(), batches(3, 2, 5, 8))


@program()
def language_model():
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.pos = nn.Embedding(11, 8), nn.Parameter(torch.zeros(6, 8))
            self.norm, self.q = nn.LayerNorm(8), nn.Linear(8, 24)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, i):
            x = self.emb(i) + self.pos[: i.shape[1]]
            q, k, v = self.q(self.norm(x)).chunk(3, dim=-1)
            mask = torch.tril(torch.ones(i.shape[1], i.shape[1])).bool()
            scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~mask, float("-inf"))
            return self.head(x + scores.softmax(-1) @ v)

    calls = [(torch.tensor(np.random.default_rng(k).integers(0, 11, (3, 6))),) for k in range(3)]
    return fit(Model(), lambda m, i: F.cross_entropy(m(i[:, :-1]).reshape(-1, 11), i[:, 1:].reshape(-1)), calls)


@program()
def long_short_term_memory():
    torch.manual_seed(0)
    model = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    return fit(model, lambda m, x: m(x)[0].pow(2).mean() + m(x)[1][0].sum(), batches(3, 2, 6, 4))


@program()
def gated_recurrent_unit():
    torch.manual_seed(0)
    model = nn.GRU(4, 5, bidirectional=True)
    return fit(model, lambda m, x: m(x)[0].pow(2).mean(), batches(3, 6, 2, 4))


@program()
def variational_autoencoder():
    torch.manual_seed(0)
    model = nn.ModuleDict({"enc": nn.Linear(4, 6), "dec": nn.Linear(3, 4)})

    def loss(m, x):
        mean, logvar = m["enc"](x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
        return F.mse_loss(m["dec"](z), x) + 0.1 * kl

    return fit(model, loss, batches(4, 5, 4))


@program()
def distillation():
    student, teacher = mlp(), mlp()

    def loss(m, x):
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        return F.kl_div(m(x).log_softmax(-1), target, reduction="batchmean")

    return fit(student, loss, batches(3, 5, 4), state=tuple(teacher.parameters()))


@program()
def contrastive():
    def loss(m, x):
        z = F.normalize(m(x), dim=1)
        return F.cross_entropy(z @ z.t() / 0.1, torch.arange(x.shape[0]))

    return fit(mlp(), loss, batches(3, 5, 4))


@program()
def gumbel_softmax():
    def loss(m, x):
        return F.gumbel_softmax(m(x), tau=0.5, hard=True)[:, 0].sum() + m(x).mean()

    return fit(mlp(), loss, batches(3, 5, 4))


@program()
def noise_and_generator():
    g = torch.Generator().manual_seed(5)
    return fit(mlp(), lambda m, x: (m(x + 0.1 * torch.randn(5, 4, generator=g)) ** 2).mean(), batches(4, 5, 4))


@program()
def power_iteration():
    model = nn.Linear(4, 4, bias=False)
    u = rand(4)

    def loss(m, x):
        with torch.no_grad():
            v = F.normalize(m.weight.t() @ u, dim=0)
            u.copy_(F.normalize(m.weight @ v, dim=0))
        sigma = u @ m.weight @ v
        return ((x @ (m.weight / sigma).t()) ** 2).mean()

    return fit(model, loss, batches(4, 5, 4), state=(u,))


@program()
def weight_norm_by_hand():
    model = nn.ParameterDict({"g": nn.Parameter(torch.ones(3)), "v": nn.Parameter(rand(3, 4))})

    def loss(m, x):
        w = m["v"] * (m["g"] / m["v"].norm(dim=1))[:, None]
        return (x @ w.t()).relu().sum()

    return fit(model, loss, batches(3, 5, 4), lr=0.01)


@program()
def module_hooks():
    model = mlp()
    model[0].register_forward_hook(lambda m, args, out: out * 2)
    model[2].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    model[0].register_full_backward_hook(lambda m, gi, go: (None if gi[0] is None else gi[0] * 3,))
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
    return fit(model, lambda m, x: (m(x) ** 2).mean(), batches(3, 5, 4))


@program()
def two_losses_retained():
    def loss(m, x):
        h = m[1](m[0](x))
        a = h.pow(2).mean()
        a.backward(retain_graph=True)
        return a + m[2](h).pow(2).mean()

    return fit(mlp(), loss, batches(3, 5, 4))


@program()
def parameter_groups():
    model = mlp()
    opt = optim.AdamW([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}], lr=0.01)

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    step(*batches(1, 5, 4)[0])

    def between(i):
        for group in opt.param_groups:
            group["lr"] *= 0.9

    return step, batches(4, 5, 4), list(model.parameters()), between


@program()
def clipping_by_value():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        (model(x) ** 2).sum().backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        opt.step()

    return step, batches(3, 5, 4), [*model.parameters(), lambda: [p.grad for p in model.parameters()]]


@program(recordings=2)
def skips_bad_steps():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = (model(x) ** 2).mean()
        if not torch.isfinite(loss):
            return loss
        loss.backward()
        opt.step()
        return loss

    bad = torch.full((5, 4), float("nan"))
    good = batches(4, 5, 4)
    return step, [good[0], good[1], (bad,), good[2], (bad,), good[3]], list(model.parameters())


@program(recordings=2)
def data_dependent_depth():
    layer = nn.Linear(4, 4)

    def loss(m, x):
        depth = 0
        while x.abs().max() > 0.7 and depth < 5:
            x = torch.tanh(m(x)) * 0.9
            depth += 1
        return (x**2).sum() + (m.weight**2).sum()

    return fit(layer, loss, [(torch.full((1, 4), v),) for v in (0.1, 3.0, 0.2, 3.0)])


@program()
def beam_search_step():
    w = rand(7, 7)

    def step(scores, last):
        total = (scores[:, None] + (w[last]).log_softmax(-1)).reshape(-1)
        best, place = total.topk(3)
        return best, place // 7, place % 7

    return step, [(rand(3, seed=i), torch.tensor([i, 2, 3])) for i in range(4)], []


@program()
def k_means_step():
    centers = rand(3, 2)

    def step(x):
        nearest = torch.cdist(x, centers).argmin(dim=1)
        sums = torch.zeros(3, 2).index_add(0, nearest, x)
        counts = torch.zeros(3).index_add(0, nearest, torch.ones(x.shape[0]))
        centers.copy_(sums / counts.clamp(min=1)[:, None])
        return nearest

    return step, batches(4, 12, 2), [centers]


@program()
def embedding_bag_sum():
    emb = nn.Embedding(9, 4, padding_idx=0)
    calls = [(torch.tensor([[1, 2, 0], [k, 0, 0]]),) for k in range(3)]
    return fit(emb, lambda m, i: (m(i).sum(1) ** 2).mean(), calls)


@program()
def polyak_update_under_inference():
    model, slow = mlp(), mlp()

    def step(x):
        with torch.inference_mode():
            y = slow(x).sum()
        with torch.no_grad():
            for a, b in zip(slow.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
        return y * 1.0

    return step, batches(3, 5, 4), list(slow.parameters())


@program()
def loss_scaling():
    model = mlp()
    scale = torch.tensor(8.0)
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = (model(x) ** 2).mean()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad.div_(scale)
        opt.step()
        scale.mul_(1.5)
        return loss

    return step, batches(3, 5, 4), [*model.parameters(), scale]


@program()
def manual_momentum_with_data():
    w, v = rand(4).requires_grad_(), torch.zeros(4)

    def step(x):
        w.grad = None
        ((w * x) ** 2).sum().backward()
        v.mul_(0.9).add_(w.grad)
        w.data -= 0.01 * v
        return v * 1

    return step, batches(4, 4), [w, v]


@program()
def einsum_and_norms():
    model = nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.GELU(), nn.Linear(8, 4), nn.LayerNorm(4))
    return fit(model, lambda m, x: torch.einsum("bi,bj->ij", m(x), x).pow(2).mean(), batches(3, 5, 4))


@program()
def sorted_and_scattered():
    w = nn.ParameterList([nn.Parameter(rand(6))])

    def loss(m, x):
        values, order = (m[0] * x).sort(descending=True)
        return (values.cumsum(0) * torch.zeros(6).scatter(0, order, torch.arange(6.0))).sum()

    return fit(w, loss, batches(3, 6), lr=0.01)


@program()
def deep_supervision_and_detach():
    def loss(m, x):
        h = m[1](m[0](x))
        return m[2](h.detach()).pow(2).mean() + h.pow(2).mean()

    return fit(mlp(), loss, batches(3, 5, 4))


@program(recordings=2)
def ragged_batches():
    return fit(mlp(), lambda m, x: (m(x) ** 2).mean(), [(rand(n, 4, seed=n),) for n in (6, 6, 3, 6, 3)])


@program()
def half_precision_weights():
    model = mlp().half()
    return fit(model, lambda m, x: m(x.half()).float().pow(2).mean(), batches(3, 5, 4))


@program()
def returns_nested_state():
    model = mlp()

    def step(x):
        out = model(x)
        return {"out": out.detach(), "weights": list(model.parameters()), "n": 1, "none": None}

    return step, batches(3, 5, 4), []


@program(recordings=2)
def shape_dependent_python():
    def step(x):
        parts = [row * i for i, row in enumerate(x)]
        return torch.stack(parts[::-1]) if len(parts) > 2 else sum(parts)

    return step, [(rand(n, 3, seed=n),) for n in (2, 4, 2, 4)], []


@program(recordings=3)
def sizes_that_fit_one_path_only():
    def step(index):
        table = torch.zeros(int(index.max()) + 1)
        table[index] = 1.0
        return table

    return step, [(torch.tensor(i),) for i in ([0, 3], [1, 3], [2, 5], [0, 1], [2, 3], [5, 4], [1, 0])], []


@program(recordings=2)
def matrices_that_fit_one_path_only():
    def step(a):
        return torch.linalg.cholesky(a) if a.sum() > 0 else a

    return step, [(torch.eye(3) * s,) for s in (1.0, 2.0, -1.0, 3.0, -2.0)], []


@program()
def cache_written_at_positions():
    cache = torch.zeros(2, 6, 3)

    def step(x, position):
        cache[:, position] = x.unsqueeze(1)
        return (cache * (torch.arange(6) <= position)[:, None]).sum(1)

    return step, [(x, torch.tensor([i])) for i, (x,) in enumerate(batches(4, 2, 3))], [cache]


@program(recordings=3)
def queue_with_its_position_in_a_buffer():
    queue, position = torch.zeros(6, 3), torch.zeros(1, dtype=torch.int64)

    def step(x):
        at = int(position)
        queue[at : at + 2] = x
        position[0] = (at + 2) % 6
        return queue.sum()

    return step, batches(8, 2, 3), [queue, position]


@program(recordings=2)
def counts_that_are_true_or_false():
    def step(x):
        return x * 2 if (x > 1.0).sum() else x

    return step, [(torch.tensor(x),) for x in ([0.0, 0.5], [2.0, 3.0], [0.5, 1.0], [0.0, 4.0], [5.0, 5.0])], []


@program(recordings=2)
def one_element_that_is_true_or_false():
    def step(x, flag):
        return x * 2 if flag else x

    flags = [torch.tensor([[float(v)]]) for v in (0, 3, 0, -2, 0.5, float("nan"))]
    return step, [(x, f) for (x,), f in zip(batches(6, 4), flags, strict=True)], []


def leaves(count: int, *shape: int) -> list[Any]:
    return [(x.requires_grad_(),) for (x,) in batches(count, *shape)]


@program()
def gradients_of_arguments():
    model = mlp()

    def step(x):
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    return step, leaves(4, 5, 4), [*model.parameters()], None, lambda fn, x: (fn(x), x.grad)


@program(recordings=2)
def gradients_of_arguments_add_up():
    def step(x):
        (x * x).sum().backward()

    def twice(fn, x):
        fn(x)
        before = x.grad.clone()
        fn(x)
        return before, x.grad

    return step, leaves(4, 5), [], None, twice


@program()
def gradients_of_arguments_are_cleared():
    def step(x):
        (x * x).sum().backward()
        steep = x.grad.sign()
        x.grad = None
        return steep

    return step, leaves(4, 5), [], None, lambda fn, x: (fn(x), torch.tensor(x.grad is None))


@program()
def arguments_become_leaves():
    model = mlp()

    def attack(x):
        x.requires_grad = True
        model(x).sum().backward()
        return x.detach() + 0.1 * x.grad.sign()

    def use(fn, x):
        return fn(x), x.grad, torch.tensor(x.requires_grad)

    return attack, batches(4, 5, 4), [], lambda i: model.zero_grad(), use


@program()
def arguments_become_leaves_of_what_is_returned():
    def step(x):
        return (x.requires_grad_() ** 2).sum()

    def use(fn, x):
        fn(x).backward()
        return x.grad

    return step, batches(4, 5), [], None, use


@program(recordings=2)
def networks_frozen_in_turn():
    critic, maker = mlp(), nn.Linear(4, 4)
    opts = [optim.SGD(m.parameters(), 0.1) for m in (critic, maker)]

    def step(x):
        for n, opt in enumerate(opts):
            for p in critic.parameters():
                p.requires_grad_(n == 0)
            opt.zero_grad()
            loss = critic(maker(x)).mean() * (1 - 2 * n)
            loss.backward()
            opt.step()
        return loss

    def use(fn, x):
        return fn(x), torch.tensor([p.requires_grad for p in critic.parameters()])

    return step, batches(5, 5, 4), [*critic.parameters(), *maker.parameters()], None, use


@program(recordings=2)
def network_frozen_or_not():
    model = mlp()

    def step(x, frozen):
        model.requires_grad_(not frozen)
        return model(x).detach()

    def use(fn, x, frozen):
        return fn(x, frozen), torch.tensor([p.requires_grad for p in model.parameters()])

    return step, [(x, i % 2 == 0) for i, (x,) in enumerate(batches(6, 5, 4))], [], None, use


def check(make: Callable[[], Any], recordings: int | None, backend: str) -> None:
    compiled, got = run(make, lambda f: torch.compile(f, backend=backend))
    for want in uncompiled(make):
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                assert x.dtype == y.dtype
                loose = 2e-2 if x.dtype == np.float16 else 1e-4
                np.testing.assert_allclose(x, y, rtol=loose, atol=loose / 10, err_msg=f"call {number}")
    assert recordings is None or compiled.recordings == recordings, compiled.misses
    assert compiled.recordings < len(got)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("make", "recordings"), program.rows, ids=[m.__name__ for m, _ in program.rows])
def test_compiled_equals_eager(make: Callable[[], Any], recordings: int, backend: str) -> None:
    check(make, recordings, backend)


def rotated(n: int) -> Any:
    return torch.tensor([*range(1, n), 0])


OVERWRITES: dict[str, Callable[[Any], Any]] = {
    "flipped": lambda s: s.copy_((s * 2).flip(0) + 1),
    "transposed": lambda s: s.copy_((s * 2).T + s.exp()),
    "flipped twice": lambda s: s.copy_((s + 1).flip(0) * (s + 2).flip(1)),
    "row and column": lambda s: s.copy_((s * 2)[0][:, None] * (s * 2)[:, 0]),
    "product with itself": lambda s: s.copy_((s * 2) @ (s + 1)),
    "product and itself": lambda s: s.copy_(s + (s.detach() * 2) @ torch.eye(5)),
    "rows taken": lambda s: s.copy_((s * 2)[rotated(5)] - 1),
    "rows put": lambda s: s.index_copy_(0, torch.tensor([3, 1]), s[:2] * 2),
    "rows added": lambda s: s.index_add_(0, rotated(5), s * 2),
    "scattered": lambda s: s.scatter_(0, rotated(5)[:, None].expand(5, 5), s.flip(1)),
    "sums so far": lambda s: s.copy_((s * 2).flip(0).cumsum(0)),
    "sorted": lambda s: s.copy_((s * 2).sort(0)[0].flip(0)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OVERWRITES)
def test_state_that_is_overwritten_from_itself(name: str, backend: str) -> None:
    """Each result element is stored over one that others may still be computed from."""
    write = OVERWRITES[name]
    ours, theirs = torch.zeros(5, 5), torch.zeros(5, 5)
    compiled = torch.compile(write, backend=backend)
    for call in range(3):
        for state, fn in ((ours, compiled), (theirs, by_numpy(write))):
            state.copy_(rand(5, 5, seed=call))
            fn(state)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
    assert compiled.recordings == 1


@pytest.mark.parametrize("reset", ["loaded", "emptied"])
def test_optimizer_state_that_is_replaced_is_used(reset: str) -> None:
    """Loading a checkpoint between compiled steps gives new state tensors; the recording holds for the old ones."""

    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        saved: Any = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if compiled else step
        found = []
        for n in range(12):
            found.append(run(torch.ones(2, 4) + n).item())
            if n == 4:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            if n == 7:
                model.load_state_dict(saved[0])
                if reset == "loaded":
                    optimizer.load_state_dict(saved[1])
                else:
                    optimizer.state = defaultdict(dict)
        return found

    np.testing.assert_allclose(losses(True), by_numpy(losses)(False), rtol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kind", "start", "change"),
    [
        ("SGD", {}, {"weight_decay": 0.5}),
        ("SGD", {"weight_decay": 0.5}, {"weight_decay": 0}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0}),
        ("SGD", {"momentum": 0.9}, {"nesterov": True}),
        ("SGD", {"momentum": 0.9}, {"maximize": True}),
        ("Adam", {}, {"weight_decay": 0.5}),
        ("RMSprop", {}, {"centered": True}),
    ],
)
def test_options_that_are_switched_between_calls(kind: str, start: dict[str, Any], change: dict[str, Any]) -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **start)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if compiled else step
        found = [run(torch.ones(2, 4)).item() for _ in range(6)]
        optimizer.param_groups[0].update(change)
        if "centered" in change:
            optimizer.state = defaultdict(dict)
        return found + [run(torch.ones(2, 4)).item() for _ in range(4)]

    np.testing.assert_allclose(losses(True), by_numpy(losses)(False), rtol=1e-5)


def _gradient_steps(m: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], None]]:
    """Return the operations of training loops on gradients, by name."""
    weights = list(m.parameters())

    def clear() -> None:
        for p in weights:
            p.grad = None

    def zero() -> None:
        for p in weights:
            if p.grad is not None:
                p.grad.zero_()

    def scale() -> None:
        for p in weights:
            if p.grad is not None:
                p.grad.mul_(0.5)

    return {"clear": clear, "zero": zero, "scale": scale, "backward": lambda: m(x).pow(2).mean().backward()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", ["clear", "zero", "scale", "backward"])
def test_what_a_call_does_to_gradients_in_any_order(first: str) -> None:
    """Also to those that it writes and then replaces: the memory of these is not that of the new ones."""
    for rest in product(["clear", "zero", "scale", "backward"], repeat=2):
        seen: list[Any] = []
        for compiled in (False, True):
            torch.manual_seed(0)
            m = nn.Linear(3, 2)
            steps = _gradient_steps(m, torch.ones(2, 3))

            def program(steps: dict[str, Callable[[], None]] = steps, order: tuple[str, ...] = (first, *rest)) -> None:
                for name in order:
                    steps[name]()

            call = torch.compile(program) if compiled else program
            found = []
            for _ in range(4):
                call()
                found.append([None if p.grad is None else p.grad.tolist() for p in m.parameters()])
            seen.append(found)
        assert seen[1] == seen[0], (first, *rest)


def test_a_rate_that_every_call_multiplies_is_followed() -> None:
    def trained(compile: Any) -> tuple[int, list[float]]:
        w = torch.ones(3, requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.1, momentum=0.5)
        calls = 0

        def step(x: torch.Tensor) -> None:
            nonlocal calls
            calls += 1
            opt.zero_grad()
            (w * x).sum().backward()
            if calls % 2 == 0:
                opt.param_groups[0]["lr"] *= 0.5
            opt.step()

        compiled = compile(step)
        for i in range(10):
            compiled(torch.full((3,), 1.0 + i))
        return getattr(compiled, "recordings", 0), [*w.tolist(), opt.param_groups[0]["lr"]]

    recordings, found = trained(torch.compile)
    assert found == pytest.approx(by_numpy(trained)(lambda fn: fn)[1], rel=1e-6)
    assert recordings <= 5  # not one for each rate
