"""Random training programs, compiled and eager: ``python -m tests.fuzz.training --minutes 10 --seed 0``.

A program is a model, an optimizer and a step made of lines of the tables below. They have modules with buffers and
hooks, writes to views of parameters, random numbers, derivatives by ``func`` and promotion. There are also ``out=``
over shared memory, generators, and errors in the middle. Between calls the surrounding state changes. After every call,
results, errors, gradients, and state of modules, optimizers and generators are compared.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tracecomp as torch
from tests.fuzz.command import by_command

CALLS = 6
IMPORTS = """
import contextlib, copy, itertools, math
from torch import nn, func
from torch.nn import functional as F
"""
LAYERS = (
    "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)", "nn.ReLU()", "nn.Tanh()", "nn.Dropout(0.3)", "nn.GELU()",
    "nn.BatchNorm1d(4)", "nn.BatchNorm1d(4, momentum=None)", "nn.LayerNorm(4)", "nn.AlphaDropout(0.2)", "Counting()",
    "Averaging()", "Noisy()", "nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))", "nn.Softplus()",
    "nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))", "nn.RReLU()", "Residual(nn.Linear(4, 4))",
)  # fmt: skip
SETUP = """
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("total", torch.zeros(4), persistent=False)
    def forward(self, x):
        self.count += 1
        self.total[1:].add_(x.detach().sum(0)[1:])
        return x * (1 + 0.01 * self.count)

class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 0.1))
    def forward(self, x):
        return x + self.scale * torch.randn_like(x) if self.training else x

class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return x + self.inner(x)

def parts(h):
    for row in h:
        yield row * 2

@contextlib.contextmanager
def doubled(t):
    t.mul_(2)
    try:
        yield t
    finally:
        t.mul_(0.5)

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * n
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.n + 0 * x, None

torch.manual_seed(3)
model = nn.Sequential({layers})
weights = [p for p in model.parameters()]
first = weights[0]
memory = torch.arange(12.0).reshape(3, 4)
log, seen = [], {{}}
generator = torch.Generator().manual_seed(5)
optimizer = {optimizer}
scheduler = {scheduler}
"""
OPTIMIZERS = (
    "torch.optim.SGD(weights, lr=0.1)", "torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True)",
    "torch.optim.AdamW([{'params': weights[:1], 'lr': 0.03}, {'params': weights[1:], 'weight_decay': 0.2}], lr=0.01)",
    "torch.optim.Adam(weights, lr=0.01, amsgrad=True)", "torch.optim.RMSprop(weights, lr=0.01, momentum=0.5)",
    "torch.optim.Adagrad(weights, lr=0.1)", "torch.optim.NAdam(weights, lr=0.01)", "torch.optim.Rprop(weights)",
    "torch.optim.Adam([{'params': [p], 'lr': 0.01 * (k + 1)} for k, p in enumerate(weights)])",
    "torch.optim.Adamax(weights, lr=0.01)", "torch.optim.ASGD(weights, lr=0.05)", "torch.optim.RAdam(weights, lr=0.01)",
    "torch.optim.Adadelta(weights, lr=0.5)",
)  # fmt: skip
SCHEDULERS = (
    "torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)", "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)",
    "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)",
    "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, 20, cycle_momentum=False)",
    "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 1))",
    "torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, 2, cycle_momentum=False)",
)  # fmt: skip
BEFORE = (
    "with torch.no_grad():\n    first[0].mul_(0.5)",
    "with torch.no_grad():\n    first.view(-1)[1:3].zero_()",
    "with torch.no_grad():\n    first.t()[1].add_(x.sum())",
    "with torch.no_grad():\n    for p in weights:\n        p.clamp_(-1, 1)",
    "first.data[:1] += 0.25",
    "first.detach()[..., -1].copy_(x[0, 0])",
    "memory[1:].copy_(memory[:-1].clone())",
    "torch.add(memory[0], memory[1], out=memory[2])",
    "torch.mul(memory, 0.5, out=memory)",
    "torch.exp(memory.clamp(max=1), out=memory)",
    "torch.cumsum(memory, 0, out=memory)",
    "memory.t()[0] = x[:, 0].sum()",
    "memory.index_add_(0, torch.tensor([0, 2, 0]), torch.ones(3, 4))",
    "memory[memory > 3] = x.mean()",
    "torch.where(memory > 0, memory, -memory, out=memory)",
    "log.append(float(memory.sum()))",
    "seen['n'] = seen.get('n', 0) + 1",
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "u = memory.unbind(0)\nlog.append((u[0] + u[1]).sum().item())",
    "memory, = [memory]\nmemory.add_(memory.t().sum(0).sum())",
)
FORWARD = (
    "h = h + torch.tensor(2)",
    "h = h * torch.tensor(1.5, dtype=torch.float64)",
    "h = h + (h > 0) * 1.5",
    "h = h + torch.arange(4) / 2",
    "h = h + torch.arange(4) * 0.5 - True",
    "h = (h.half() * torch.tensor(3.0)).float()",
    "h = (h.bfloat16() + torch.ones(4, dtype=torch.float16)).to(h.dtype)",
    "h = torch.where(h > 0, h, 0.5)",
    "h = h + (torch.tensor(7) // 2) + torch.tensor([1, 2, 3, 4]) % 3",
    "h = h * 2**0.5 / 3 + 1e-3",
    "h = F.dropout(h, 0.25)",
    "h = F.dropout(h, 0.25, training=False)",
    "h = h + torch.rand(4)",
    "h = h + torch.rand(4, generator=generator)",
    "h = h * torch.bernoulli(torch.full_like(h, 0.7))",
    "h = h[torch.randperm(h.shape[0])]",
    "with torch.random.fork_rng():\n    torch.manual_seed(9)\n    h = h + torch.randn(4)",
    "h = h + torch.empty(4).uniform_(-1, 1)",
    "h = h + torch.normal(0.0, torch.ones(4))",
    "h = h + torch.multinomial(torch.ones(6), 4)",
    "h = F.gumbel_softmax(h, dim=-1)",
    "h = h + sum(parts(h))",
    "h = torch.stack([*map(torch.tanh, parts(h))])",
    "h = torch.stack(list(itertools.islice(parts(h), h.shape[0])))",
    "with doubled(memory) as m:\n    h = h + m[0]",
    "h = h + func.vmap(lambda r: r * r.sum())(h.detach())",
    "h = h + func.grad(lambda t: (t ** 3).sum())(h.detach())",
    "h = h + func.jvp(torch.sin, (h.detach(),), (torch.ones_like(h),))[1]",
    "h = h + func.functional_call(model, {k: v * 0.5 for k, v in model.named_parameters()}, (x,)).detach()",
    "h = h + func.jacrev(lambda t: t.tanh())(h.detach()[0]).sum(0)",
    "h = h + func.vmap(func.grad(lambda t, w: (t @ w.t()).tanh().sum()), (0, None))(h.detach(), torch.ones(4, 4))",
    "h = torch.utils.checkpoint.checkpoint(model, h, use_reentrant=False)",
    "h = Scale.apply(h, 1.5)",
    "h.register_hook(lambda g: g * 0.5)",
    "h = h.clone()\nh[:, 1:] = h[:, :-1] * 2",
    "h = h.clone()\nh[0].add_(h[-1])",
    "h = h.clone()\nu = h.unbind(0)\nh.mul_(2)\nh = h + u[0]",
    "v = first[0]\nh = h + (v * 2).sum()",
    "with torch.no_grad():\n    v = h[:1]\nh = h + v",
    "h = h * float(h.detach().abs().amax() > 1)",
    "h = h if h.detach().sum() > 0 else h * 0.5",
    "h = h + memory[int(x[0, 0] * 0) + 1]",
    "log.append(h.shape[0])",
    "try:\n    h = h.view(7, 7)\nexcept RuntimeError:\n    h = h + 1",
    "h = h / h.norm(dim=1, keepdim=True).clamp_min(1e-6)",
    "h = torch.cat([h, h.flip(0)])[::2]",
    "h = h.double().float()",
    "h = torch.einsum('bi,ij->bj', h, first[:4, :4] if first.dim() == 2 else torch.eye(4))",
    "h, _ = h.sort(-1)",
    "h = h + h.detach().topk(2).values.sum(-1, keepdim=True)",
    "with torch.autocast('cpu', torch.bfloat16):\n    h = model(h).float()",
    "h = h.squeeze().reshape(-1, 4)",
)
AFTER = (
    "with torch.no_grad():\n    first.view(-1)[:2].mul_(0.9)",
    "memory.mul_(0.5)",
    "raise ValueError('stop')",
    "if x[0, 0] > 2:\n    raise ValueError('stop')",
    "x.view(5, 5)",
    "memory[int(x[0, 0])]",
    "loss = loss + memory[x.abs().long().sum() % 4].sum()",
    "loss = loss + 0.1 * sum(p.pow(2).sum() for p in weights)",
    "log.append(loss.item())",
    "seen['loss'] = loss.detach()",
)
BACKWARD = (
    "loss.backward()",
    "loss.backward()",
    "loss.backward()\nnn.utils.clip_grad_norm_(weights, 0.5)",
    "loss.backward()\nnn.utils.clip_grad_value_(weights, 0.1)",
    "loss.backward(retain_graph=True)\nloss.backward()",
    "for p, g in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True)):\n    p.grad = g",
    "(loss * 0.5).backward()\nwith torch.no_grad():\n    for p in weights:\n        if p.grad is not None:\n"
    "            p.grad[0] *= 2",
    "",
)
LAST = (
    "optimizer.step()",
    "optimizer.step()\noptimizer.zero_grad()",
    "optimizer.step()\nscheduler.step()",
    "with torch.no_grad():\n    for p in weights:\n        if p.grad is not None:\n            p -= 0.01 * p.grad",
    "torch._foreach_mul_(weights, 0.99)",
    "",
)
RESULTS = ("loss", "loss.detach()", "(h, loss)", "h[0]", "{'h': h, 'n': h.shape[0], 'memory': memory}", "memory[1:]")
CHANGES = (
    "model.eval()", "model.train()", "for g in optimizer.param_groups:\n    g['lr'] *= 0.5", "torch.manual_seed(7)",
    "model.load_state_dict(copy.deepcopy(model.state_dict()))", "torch.rand(3)", "optimizer.zero_grad()",
    "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))", "first.requires_grad_(not first.requires_grad)",
    "generator.manual_seed(1)", "scheduler.step()", "memory.fill_(0.5)", "for p in weights:\n    p.grad = None",
    "state = torch.get_rng_state(); torch.rand(2); torch.set_rng_state(state)",
    "hook = model.register_forward_hook(lambda m, a, out: out * 1.5)",
    "model[0].register_full_backward_hook(print_none)",
    "first.register_hook(lambda g: g * 0.5)", "model[0].register_forward_pre_hook(lambda m, a: (a[0] + 1,))",
    "with torch.no_grad():\n    first.copy_(first.flip(0))", "optimizer.param_groups[0]['weight_decay'] = 0.1",
    "optimizer.state.clear()", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)",
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """``changes`` are made before it; ``rows`` and ``scale`` are those of its argument."""

    changes: tuple[str, ...]
    rows: int
    scale: float


@dataclass(frozen=True)
class Program:
    """Texts of a model's layers, of optimizer and scheduler, and of the step."""

    layers: tuple[str, ...]
    optimizer: str
    scheduler: str
    lines: tuple[tuple[str, ...], ...]
    result: str
    calls: tuple[Call, ...]

    def text(self) -> str:
        """The step as a function."""
        before, forward, after, last = self.lines
        body = [*before, "h = model(x)", *forward, "loss = h.float().pow(2).mean()", *after, *last]
        inner = textwrap.indent("\n".join(body), "    ")
        return f"def step(x):\n    global memory\n{inner}\n    return {self.result}\n"


def generate(seed: int) -> Program:
    """The program of ``seed``."""
    r = random.Random(seed)
    some = lambda table, *counts: tuple(r.choice(table) for _ in range(r.choice(counts)))  # noqa: E731
    layers = ("nn.Linear(4, 4)", *some(LAYERS, 0, 1, 2, 3))
    last = (r.choice(BACKWARD), r.choice(LAST))
    lines = (some(BEFORE, 0, 0, 1, 2), some(FORWARD, 0, 1, 1, 2, 3), some(AFTER, 0, 0, 0, 1), last)
    rows = (3, 3, r.choice((1, 2, 5))) if r.random() < 0.3 else (3,)
    calls = tuple(
        Call(some(CHANGES, 0, 0, 1, 2) if n > 1 else (), r.choice(rows), r.choice((1.0, 1.0, -2.0, 5.0)))
        for n in range(CALLS)
    )
    return Program(layers, r.choice(OPTIMIZERS), r.choice(SCHEDULERS), lines, r.choice(RESULTS), calls)


class World:
    """One copy of a program, with separate state, including its generator's."""

    def __init__(self, p: Program) -> None:
        self.space: dict[str, Any] = {"torch": torch, "__name__": "__main__", "print_none": lambda *a: None}
        setup = SETUP.format(layers=", ".join(p.layers), optimizer=p.optimizer, scheduler=p.scheduler)
        imports = IMPORTS.replace("from torch", "from tracecomp")
        exec(compile(imports + setup, "<setup>", "exec"), self.space)
        self.space["__name__"] = "program"
        run(p.text(), self.space)
        self.modes()

    def modes(self) -> None:
        self.state, self.grad = torch.get_rng_state(), torch.is_grad_enabled()

    def call(self, c: Call, n: int) -> Any:
        """All that is seen of call ``n``."""
        torch.set_rng_state(self.state)
        torch.set_grad_enabled(self.grad)
        for change in c.changes:
            with contextlib.suppress(Exception):
                exec(change, self.space)
        x = (torch.arange(float(c.rows * 4)).reshape(c.rows, 4) % 5 - 1.75 + 0.1 * n) * c.scale
        try:
            found: Any = self.space["step"](x)
        except Exception as error:
            found = type(error).__name__
        s = self.space
        grads = [p.grad for p in s["weights"]]
        kept = [s["optimizer"].state[p] for p in s["weights"]] if s["optimizer"].state else []
        groups = [{k: v for k, v in g.items() if k != "params"} for g in s["optimizer"].param_groups]
        seen = plain({
            "result": found, "state": dict(s["model"].state_dict()), "grads": grads, "optimizer": kept,
            "groups": groups, "memory": s["memory"], "log": s["log"], "seen": s["seen"], "x": x,
            "random": torch.get_rng_state(), "generator": s["generator"].get_state(),
            "schedule": s["scheduler"].state_dict(), "asks": [p.requires_grad for p in s["weights"]],
            "versions": [p._version for p in (*s["weights"], s["memory"])],
        })  # fmt: skip
        self.modes()
        return seen


def run(text: str, space: dict[str, Any]) -> None:
    """Execute a program's text so that its source is found."""
    file = f"<training {hash(text) % 10**9}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), space)


def plain(value: Any) -> Any:
    """``value`` with tensors as what can be seen of them."""
    if isinstance(value, torch.Tensor):
        try:
            asks: Any = value.requires_grad, value.is_leaf
        except RuntimeError as error:
            asks = type(error).__name__
        shown = value.detach()
        return (
            "tensor",
            asks,
            str(value.dtype),
            (shown.float() if value.dtype is torch.bfloat16 else shown).numpy().copy(),
        )
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if not callable(v)}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, int | float | str | bool | None) else type(value).__name__


def bits(a: np.ndarray[Any, Any]) -> bytes:
    """The bits of an array; all NaNs have the same, because sign and payload of a NaN have no meaning."""
    return (np.where(a != a, a.dtype.type(np.nan), a) if a.dtype.kind == "f" else a).tobytes()


def unequal(a: Any, b: Any, exact: bool) -> str | None:
    """Return where ``a`` differs from ``b``."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        same = bits(a) == bits(b) if exact else np.allclose(a, b, rtol=2e-3, atol=1e-5, equal_nan=True)
        return None if same else f"{a.tolist()} instead of {b.tolist()}"
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        return next((f"{k}: {found}" for k in a if (found := unequal(a[k], b[k], exact)) is not None), None)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((f"[{n}] {found}" for n, (x, y) in pairs if (found := unequal(x, y, exact)) is not None), None)
    if isinstance(a, float) and isinstance(b, float) and not exact:
        return None if np.isclose(a, b, rtol=2e-3, atol=1e-5, equal_nan=True) else f"{a} instead of {b}"
    same = type(a) is type(b) and (a == b or (a != a and b != b))
    return None if same else f"{a} instead of {b}"


def check(
    p: Program, exact: bool = False, before_call: Callable[[int], object] = lambda n: None
) -> str | None:  # fmt: skip
    """The first call of ``p`` that differs from eager's; ``before_call`` runs before each compiled one."""
    before = torch.get_rng_state(), torch.is_grad_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager, compiled = World(p), World(p)
            compiled.space["step"] = torch.compile(compiled.space["step"])
            for n, c in enumerate(p.calls):
                want = eager.call(c, n)
                before_call(n)
                found = unequal(compiled.call(c, n), want, exact)
                if found is not None:
                    return f"call {n}: {found[:600]}"
        finally:
            torch.set_rng_state(before[0])
            torch.set_grad_enabled(before[1])
    return None


def smaller(p: Program) -> list[Program]:
    """Programs that are a little simpler than ``p``."""
    found = [replace(p, calls=p.calls[:k] + p.calls[k + 1 :]) for k in range(len(p.calls)) if p.calls[1:]]
    found += [replace(p, layers=p.layers[:k] + p.layers[k + 1 :]) for k in range(1, len(p.layers))]
    for k, part in enumerate(p.lines):
        for j in range(len(part)):
            found.append(replace(p, lines=(*p.lines[:k], part[:j] + part[j + 1 :], *p.lines[k + 1 :])))
    for k, c in enumerate(p.calls):
        simpler = [replace(c, changes=c.changes[:j] + c.changes[j + 1 :]) for j in range(len(c.changes))]
        simpler += [replace(c, rows=3, scale=1.0)]
        found += [replace(p, calls=(*p.calls[:k], d, *p.calls[k + 1 :])) for d in simpler if d != c]
    if p.optimizer != OPTIMIZERS[0]:
        found.append(replace(p, optimizer=OPTIMIZERS[0]))
    if p.result != RESULTS[0]:
        found.append(replace(p, result=RESULTS[0]))
    return found


def difference(seed: int) -> str | None:
    """Return the difference between compiled and eager runs of the program of a seed, reduced; None if they agree."""
    p = generate(seed)
    found = check(p)
    kind = None if found is None else found.split(":")[1]
    going = found is not None
    while going:
        going = False
        for q in smaller(p):
            try:
                said = check(q)
            except Exception:
                continue
            if said is not None and said.split(":")[1] == kind:
                p, found, going = q, said, True
                break
    told = f"seed {seed}: {p.layers} {p.optimizer} {p.scheduler}\n{p.text()}    {p.calls}\n    {found}"
    return None if found is None else told


if __name__ == "__main__":
    sys.exit(by_command(__doc__ or "", "programs", difference))
