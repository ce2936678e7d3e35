"""More kinds of training, and what people put around it."""

from __future__ import annotations

import io
import json
import math
import random
from contextlib import contextmanager

import numpy as np

import tracecomp as torch
from tests.programs.registry import data, labels, mlp, script
from tracecomp import nn, optim

F = nn.functional


@script
def tasks_weighted_by_uncertainty(compile):
    """two tasks whose weights are learned"""
    model, logs = mlp(4, 6, 3), nn.Parameter(torch.zeros(2))
    opt = optim.Adam([*model.parameters(), logs], lr=1e-2)

    @compile
    def step(x, y, z):
        out = model(x)
        losses = torch.stack([F.cross_entropy(out[:, :2], y), F.mse_loss(out[:, 2], z)])
        loss = (losses * (-logs).exp() + logs).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return losses.detach()

    return [step(data(6, 4, seed=i), labels(2, 6, seed=i), data(6, seed=i)) for i in range(4)], logs


@script
def momentum_contrast(compile):
    """a queue of keys with its pointer in Python, and a slow copy of the encoder"""
    fast, slow = nn.Linear(4, 3), nn.Linear(4, 3)
    slow.load_state_dict(fast.state_dict())
    queue, state = F.normalize(data(8, 3), dim=1), {"at": 0}
    opt = optim.SGD(fast.parameters(), lr=0.1)

    @compile
    def step(a, b):
        with torch.no_grad():
            for p, q in zip(slow.parameters(), fast.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
            keys = F.normalize(slow(b), dim=1)
        q = F.normalize(fast(a), dim=1)
        logits = torch.cat([(q * keys).sum(1, keepdim=True), q @ queue.t()], 1) / 0.1
        loss = F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.int64))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            queue[state["at"] : state["at"] + len(a)] = keys
        state["at"] = (state["at"] + len(a)) % len(queue)
        return loss

    return [step(data(4, 4, seed=i), data(4, 4, seed=9 + i)) for i in range(5)], queue, state


@script
def annealed_autoencoder(compile):
    """a VAE whose KL term grows by a formula of the step's number"""
    encode, decode = nn.Linear(5, 4), nn.Linear(2, 5)
    opt = optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-2)

    @compile
    def step(x, k):
        mean, log = encode(x).chunk(2, 1)
        z = mean + (0.5 * log).exp() * torch.randn_like(mean)
        kl = -0.5 * (1 + log - mean**2 - log.exp()).sum(1).mean()
        loss = F.mse_loss(decode(z), x) + min(1.0, k / 5) * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(6, 5, seed=k), k) for k in range(7)]


@script
def teacher_forcing(compile):
    """a decoder that sees the truth or its own guess, as Python's random says at every place"""
    emb, cell, out = nn.Embedding(6, 4), nn.GRUCell(4, 4), nn.Linear(4, 6)
    opt = optim.SGD([*emb.parameters(), *cell.parameters(), *out.parameters()], lr=0.1)

    @compile
    def step(h, target):
        token, loss = torch.zeros(len(h), dtype=torch.int64), 0.0
        for t in range(target.shape[1]):
            h = cell(emb(token), h)
            logits = out(h)
            loss = loss + F.cross_entropy(logits, target[:, t])
            token = target[:, t] if random.random() < 0.5 else logits.argmax(1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(2, 4, seed=i), labels(6, 2, 3, seed=i)) for i in range(4)]


@script
def alignment_free_speech(compile):
    """CTC over frames of several lengths"""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5))
    opt = optim.Adam(model.parameters(), lr=1e-2)

    @compile
    def step(x, y, frames, letters):
        logits = model(x).log_softmax(-1).transpose(0, 1)
        loss = F.ctc_loss(logits, y, frames, letters)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [
        step(data(2, n, 4, seed=n), labels(4, 2, 3, seed=n) + 1, torch.tensor([n, n - 1]), torch.tensor([3, 2]))
        for n in (8, 9, 8, 10)
    ]


@script
def recommendations(compile):
    """factors of users and items with negatives drawn by numpy"""
    users, items = nn.Embedding(6, 3), nn.Embedding(9, 3)
    opt, rng = optim.Adagrad([*users.parameters(), *items.parameters()], lr=0.1), np.random.default_rng(2)

    @compile
    def step(u, i):
        other = torch.from_numpy(rng.integers(0, 9, len(u)))
        gap = (users(u) * (items(i) - items(other))).sum(1)
        loss = -F.logsigmoid(gap).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(labels(6, 5, seed=k), labels(9, 5, seed=k)) for k in range(4)]


@script
def transposed_weights_shared(compile):
    """an autoencoder whose decoder is its encoder turned around, inputs corrupted by dropout"""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b, self.c = (
                nn.Parameter(data(3, 5) * 0.3),
                nn.Parameter(torch.zeros(3)),
                nn.Parameter(torch.zeros(5)),
            )
            self.noise = nn.Dropout(0.3)

        def forward(self, x):
            return F.linear(torch.sigmoid(F.linear(self.noise(x), self.w, self.b)), self.w.t(), self.c)

    model = Tied()
    opt, run = optim.SGD(model.parameters(), lr=0.1), compile(model)
    losses = []
    for i in range(4):
        x = data(4, 5, seed=i)
        loss = F.mse_loss(run(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return losses


@script
def pruning_in_rounds(compile):
    """masks of the smallest weights applied between rounds of training"""
    model, masks = mlp(4, 6, 1), {}
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if name in masks:
                    p.mul_(masks[name])
        return loss

    losses = []
    for i in range(6):
        if i in (2, 4):
            for name, p in model.named_parameters():
                if p.dim() > 1:
                    masks[name] = (p.abs() > p.abs().flatten().quantile(0.2 * i)).float()
        losses.append(step(data(4, 4, seed=i)))
    return losses, masks


@script
def gradients_averaged_over_shards(compile):
    """a batch in parts, gradients summed in a list of lists, as workers would"""
    model = mlp(3, 4, 1)
    weights, opt = list(model.parameters()), optim.SGD(model.parameters(), lr=0.1)

    @compile
    def local(x):
        return torch.autograd.grad(model(x).pow(2).mean(), weights)

    for i in range(4):
        found = [local(part) for part in data(8, 3, seed=i).chunk(4)]
        for p, *grads in zip(weights, *found, strict=True):
            p.grad = torch.stack(grads).mean(0)
        opt.step()
    return weights


@script
def physics_informed(compile):
    """a differential equation as a loss, with second derivatives by autograd"""
    model = mlp(1, 8, 1)
    opt = optim.Adam(model.parameters(), lr=1e-2)

    @compile
    def step(t):
        t = t.requires_grad_()
        u = model(t)
        (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), t, create_graph=True)
        loss = (bend + u).pow(2).mean() + (model(torch.zeros(1, 1)) - 1).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(6, 1, seed=i)) for i in range(4)]


@script
def sweep_over_settings(compile):
    """one compiled function for models and optimizers that a loop creates"""

    @compile
    def step(model, opt, x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss

    found = {}
    for width in (3, 5):
        for lr in (0.1, 0.01):
            torch.manual_seed(width)
            model = mlp(3, width, 1)
            opt = optim.SGD(model.parameters(), lr=lr)
            found[width, lr] = [step(model, opt, data(4, 3, seed=i)) for i in range(3)]
    return found


@script
def lines_of_a_log(compile):
    """records written as JSON by the step itself"""
    model, file = nn.Linear(3, 1), io.StringIO()

    @compile
    def step(x, k):
        loss = model(x).abs().mean()
        file.write(json.dumps({"step": k, "loss": round(loss.item(), 3)}) + "\n")
        return loss

    for k in range(4):
        step(data(2, 3, seed=k), k)
    return file.getvalue()


@script
def context_of_evaluation(compile):
    """a custom context manager that switches modes and weights, used inside"""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    average = [p.detach().clone() * 0.5 for p in model.parameters()]

    @contextmanager
    def averaged():
        was, kept = model.training, [p.detach().clone() for p in model.parameters()]
        model.eval()
        with torch.no_grad():
            for p, a in zip(model.parameters(), average, strict=True):
                p.copy_(a)
            yield model
            for p, k in zip(model.parameters(), kept, strict=True):
                p.copy_(k)
        model.train(was)

    @compile
    def evaluate(x):
        with averaged() as m:
            value = m(x).mean()
        return value, model(x).shape

    return [evaluate(data(2, 3, seed=i)) for i in range(3)], list(model.parameters())


@script
def quantiles(compile):
    """pinball losses for levels in a tensor, coverage counted in a dictionary"""
    model, levels, hits = mlp(2, 6, 3), torch.tensor([0.1, 0.5, 0.9]), {"inside": 0, "all": 0}
    opt = optim.Adam(model.parameters(), lr=1e-2)

    @compile
    def step(x, y):
        out = model(x)
        gap = y[:, None] - out
        loss = torch.maximum(levels * gap, (levels - 1) * gap).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        hits["inside"] += int(((out[:, 0] < y) & (y < out[:, 2])).sum())
        hits["all"] += len(y)
        return loss

    return [step(data(8, 2, seed=i), data(8, seed=i)) for i in range(5)], hits


@script
def cyclic_restarts(compile):
    """warm restarts stepped by fractions of epochs, snapshots of weights at each restart"""
    model = nn.Linear(3, 1)
    opt = optim.SGD(model.parameters(), lr=0.2)
    schedule, snapshots = optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3), []

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
        schedule.step()

    for i in range(7):
        step(data(4, 3, seed=i))
        if math.isclose(opt.param_groups[0]["lr"], 0.2):
            snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
    return snapshots
