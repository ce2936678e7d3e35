"""Training programs of other kinds: implicit layers, reinforcement learning, memories, derivatives of derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.table import Table
from tests.compiled.test_function import BACKENDS, batches, pairs, rand
from tests.compiled.test_training import check
from tests.references import by_numpy
from tracecomp import nn, optim
from tracecomp.base.errors import CaptureError

F = nn.functional
program = Table()


def net(*sizes: int) -> Any:
    torch.manual_seed(sum(sizes))
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def positions(high: int, *shape: int, seed: int = 0) -> Any:
    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape))


@program()
def implicit_layer_with_a_solver_in_its_hook():
    inner, read, out = nn.Linear(6, 6), nn.Linear(4, 6), nn.Linear(6, 1)
    with torch.no_grad():
        inner.weight.mul_(0.3)
    opt = optim.SGD([*inner.parameters(), *read.parameters(), *out.parameters()], lr=0.05)

    def solve(fn, z):
        for _ in range(8):
            z = fn(z)
        return z

    def step(x, y):
        def layer(z):
            return torch.tanh(inner(z) + read(x))

        with torch.no_grad():
            z = solve(layer, torch.zeros(8, 6))
        z = layer(z)
        start = z.clone().detach().requires_grad_()
        again = layer(start)
        z.register_hook(lambda g: solve(lambda v: torch.autograd.grad(again, start, v, retain_graph=True)[0] + g, g))
        loss = ((out(z) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step, pairs(6, (8, 4), (8, 1)), [*inner.parameters(), *read.parameters()]


@program()
def implicit_layer_solved_by_while_loop():
    """The gradient goes through all steps of the solver, whose number is another for each batch."""
    inner, read = nn.Linear(5, 5), nn.Linear(4, 5)
    with torch.no_grad():
        inner.weight.mul_(0.5)
    opt = optim.SGD([*inner.parameters(), *read.parameters()], lr=0.1)

    def step(x, y):
        def advance(z, gap):
            new = torch.tanh(inner(z) + read(x))
            return new, (new - z).abs().max()

        z, _ = torch.while_loop(lambda z, gap: gap > 1e-3, advance, (torch.zeros(8, 5), torch.ones(())))
        loss = ((z - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step, [(x * (i + 1), y) for i, (x, y) in enumerate(pairs(6, (8, 4), (8, 5)))], list(inner.parameters())


@program()
def derivative_of_an_update_in_its_rate():
    """The history of the first loss is returned, but its weights are overwritten."""
    model = net(3, 8, 1)
    rate = torch.tensor(-2.0, requires_grad=True)
    opt = optim.SGD([rate], lr=0.1)

    def step(x, y, x2, y2):
        weights = dict(model.named_parameters())
        loss = ((torch.func.functional_call(model, weights, (x,)) - y) ** 2).mean()
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        new = {k: p - rate.exp() * g for (k, p), g in zip(weights.items(), grads, strict=True)}
        later = ((torch.func.functional_call(model, new, (x2,)) - y2) ** 2).mean()
        opt.zero_grad()
        later.backward(inputs=[rate])
        opt.step()
        with torch.no_grad():
            for k, p in weights.items():
                p.copy_(new[k])
        return loss, later

    calls = [(*a, *b) for a, b in zip(pairs(5, (8, 3), (8, 1)), pairs(5, (8, 3), (8, 1)), strict=True)]
    return step, calls, [*model.parameters(), rate]


@program()
def trace_of_the_hessian_by_probes():
    model = net(4, 8, 1)
    weights = list(model.parameters())
    opt = optim.SGD(weights, lr=0.01)

    def step(x, y, probe):
        loss = ((model(x) - y) ** 2).mean()
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights, create_graph=True)])
        product = torch.autograd.grad(flat, weights, probe.sign(), create_graph=True)
        total = loss + 0.01 * (torch.cat([p.reshape(-1) for p in product]) * probe.sign()).sum()
        opt.zero_grad()
        total.backward()
        opt.step()
        return loss, total

    return step, [(*c, rand(49, seed=i)) for i, c in enumerate(pairs(5, (8, 4), (8, 1)))], weights


@program()
def replay_memory_written_in_a_ring():
    model = net(4, 8, 2)
    opt = optim.SGD(model.parameters(), lr=0.05)

    class Memory:
        def __init__(self):
            self.seen, self.wanted = torch.zeros(16, 4), torch.zeros(16, 2)
            self.position, self.size = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)

        def add(self, x, y):
            at = (self.position + torch.arange(len(x))) % 16
            self.seen[at], self.wanted[at] = x, y
            self.position += len(x)
            self.size.copy_((self.size + len(x)).clamp(max=16))

    memory = Memory()

    def step(x, y, drawn):
        memory.add(x, y)
        at = (drawn.sigmoid() * memory.size).long()
        loss = F.mse_loss(model(memory.seen[at]), memory.wanted[at])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    calls = [(*c, rand(8, seed=i)) for i, c in enumerate(pairs(6, (6, 4), (6, 2)))]
    return step, calls, [*model.parameters(), memory.seen, memory.wanted, memory.position]


@program(recordings=2)
def attention_to_a_memory_under_a_decorator():
    """The closure of a decorated function holds a place that becomes another tensor."""
    query, key = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    kept = torch.zeros(2, 16, 8)

    class Position:
        now: Any = 0

    position = Position()
    position.now = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def step(x):
        kept.index_copy_(1, position.now.reshape(1), key(x))
        mask = torch.arange(16)[None] <= position.now
        position.now = position.now + 1
        return F.scaled_dot_product_attention(query(x), kept, kept, attn_mask=mask[None])

    return step, batches(6, 2, 1, 8), [kept]


@program()
def clipped_policy_over_epochs_and_minibatches():
    policy, critic = net(4, 8, 3), net(4, 8, 1)
    opt = optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-3)

    def advantages(values, rewards):
        found, last = torch.zeros_like(rewards), torch.zeros(())
        for t in reversed(range(len(rewards))):
            following = values[t + 1] if t + 1 < len(rewards) else 0.0
            last = rewards[t] + 0.99 * following - values[t] + 0.9 * last
            found[t] = last
        return found

    def step(seen, actions, before, rewards, order):
        with torch.no_grad():
            values = critic(seen).squeeze(-1)
            gains = advantages(values, rewards)
        for k in range(0, len(order), 4):
            at = order[k : k + 4]
            chosen = torch.distributions.Categorical(logits=policy(seen[at]))
            ratio = (chosen.log_prob(actions[at]) - before[at]).exp()
            gain = torch.min(ratio * gains[at], ratio.clamp(0.8, 1.2) * gains[at]).mean()
            error = (critic(seen[at]).squeeze(-1) - gains[at] - values[at]).pow(2).mean()
            loss = 0.5 * error - gain - 0.01 * chosen.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()
        return loss

    calls = [
        (rand(8, 4, seed=i), positions(3, 8, seed=i), -rand(8, seed=i).abs(), rand(8, seed=9 + i), torch.arange(8))
        for i in range(5)
    ]
    return step, calls, list(policy.parameters())


@program()
def codebook_with_running_means():
    encode, decode = net(6, 8, 4), net(4, 8, 6)
    book, counts = nn.Parameter(rand(8, 4, seed=5), requires_grad=False), torch.ones(8)
    sums = book.clone()
    opt = optim.SGD([*encode.parameters(), *decode.parameters()], lr=0.1)

    def step(x):
        z = encode(x)
        nearest = (z.detach()[:, None] - book).pow(2).sum(-1).argmin(1)
        hits = F.one_hot(nearest, 8).to(z.dtype)
        code = F.embedding(nearest, book)
        counts.mul_(0.9).add_(hits.sum(0), alpha=0.1)
        sums.mul_(0.9).add_(hits.t() @ z.detach(), alpha=0.1)
        loss = F.mse_loss(decode(z + (code - z).detach()), x) + 0.25 * F.mse_loss(code.detach(), z)
        book.copy_(sums / (counts + 1e-3).unsqueeze(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, nearest

    return step, batches(6, 10, 6), [*encode.parameters(), book, counts]


@program(recordings=2)
def attacked_inputs_between_eval_and_train():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, y):
        model.eval()
        shift = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            F.cross_entropy(model(x + shift), y).backward()
            shift.data = (shift + 0.1 * shift.grad.detach().sign()).clamp(-0.2, 0.2)
            shift.grad.zero_()
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(x + shift.detach()), y)
        loss.backward()
        opt.step()
        return loss

    calls = [(x, positions(3, 8, seed=i)) for i, (x,) in enumerate(batches(6, 8, 6))]
    return step, calls, [*model.parameters(), *model.buffers()]


@program()
def actor_and_critics_frozen_in_turn():
    actor, critic = net(4, 8, 2), net(6, 8, 1)
    target, weight = copy.deepcopy(critic).requires_grad_(False), torch.zeros((), requires_grad=True)
    opts = [optim.SGD(p, lr=0.05) for p in (list(actor.parameters()), list(critic.parameters()), [weight])]

    def update(opt, loss):
        opt.zero_grad()
        loss.backward()
        opt.step()

    def step(x, noise):
        with torch.no_grad():
            wanted = x.sum(1, keepdim=True) + 0.9 * target(torch.cat([x, actor(x).tanh()], 1))
        error = (critic(torch.cat([x, noise], 1)) - wanted).pow(2).mean()
        update(opts[1], error)
        critic.requires_grad_(False)
        action = (actor(x) + weight.exp().detach() * noise).tanh()
        value = -critic(torch.cat([x, action], 1)).mean()
        update(opts[0], value)
        critic.requires_grad_(True)
        update(opts[2], weight.exp() * (action.detach().pow(2).mean() - 0.5))
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return error, value

    return step, pairs(6, (8, 4), (8, 2)), [*actor.parameters(), *target.parameters(), weight]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("make", "recordings"), program.rows, ids=[m.__name__ for m, _ in program.rows])
def test_compiled_equals_eager(make: Callable[[], Any], recordings: int, backend: str) -> None:
    check(make, recordings, backend)


def test_lbfgs_takes_a_compiled_closure_and_is_refused_inside() -> None:
    x, y = rand(16, 4), rand(16, 1, seed=1)

    def losses(compiled: bool) -> list[float]:
        model = net(4, 8, 1)
        opt = optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)

        def closure():
            opt.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            return loss

        call = torch.compile(closure) if compiled else closure
        found = [opt.step(call).item() for _ in range(5)]
        assert not compiled or call.recordings == 1
        with pytest.raises(CaptureError, match=r"calls LBFGS.step, .* Compile the closure"):
            torch.compile(lambda: opt.step(closure), fullgraph=True)()
        return found

    assert losses(True) == pytest.approx(by_numpy(losses)(False), rel=1e-3)


def test_functional_call_of_a_module_that_a_list_holds() -> None:
    models = [nn.Linear(3, 2) for _ in range(2)]

    def example_loss(weights: Any, x: Any, y: Any) -> Any:
        logits = torch.func.functional_call(models[1], weights, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    def gradients(weights: Any, x: Any, y: Any) -> Any:
        return torch.func.vmap(torch.func.grad(example_loss), in_dims=(None, 0, 0))(weights, x, y)

    weights = {k: v.detach() for k, v in models[1].named_parameters()}
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    compiled = torch.compile(gradients)
    want = by_numpy(gradients)(weights, x, y)
    for _ in range(5):
        got = compiled(weights, x, y)
        assert all(torch.allclose(got[k], want[k], atol=1e-6) for k in want)
    assert compiled.recordings == 1
