"""User-defined models and layers."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np

import tracecomp as torch
from tests.programs.registry import data, labels, mlp, script
from tracecomp import nn, optim

F = nn.functional


@script
def tied_embeddings(compile):
    """a language model whose output layer is its embedding"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(11, 6), nn.LSTM(6, 6, batch_first=True)
            self.out = nn.Linear(6, 11, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, ids, state=None):
            x, state = self.rnn(self.emb(ids), state)
            return self.out(x), state

    model = Model()
    opt, run = optim.Adam(model.parameters(), lr=1e-2), compile(model)
    state, losses = None, []
    for i in range(4):
        ids = labels(11, 2, 6, seed=i)
        out, state = run(ids[:, :-1], state)
        state = tuple(s.detach() for s in state)
        loss = F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return losses, state


@script
def weight_norm_added_and_removed(compile):
    """parametrizations that come and go between calls"""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    run, x = compile(layer), data(4, 3)
    first = [run(x), run(x)]
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    second = run(x)
    nn.utils.parametrizations.spectral_norm(layer)
    return first, second, run(x), run(x)


@script
def autograd_function(compile):
    """a custom Function with saved tensors, used twice in a model"""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, beta):
            ctx.save_for_backward(x)
            ctx.beta = beta
            return x * torch.sigmoid(beta * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(ctx.beta * x)
            return grad * (s + ctx.beta * x * s * (1 - s)), None

    a, b = nn.Linear(3, 4), nn.Linear(4, 1)

    @compile
    def step(x, beta):
        for p in (*a.parameters(), *b.parameters()):
            p.grad = None
        b(Swish.apply(Swish.apply(a(x), beta), 2.0)).sum().backward()
        return [p.grad.clone() for p in (*a.parameters(), *b.parameters())]

    return [step(data(3, 3, seed=i), 1.0 + i) for i in range(4)]


@script
def straight_through(compile):
    """rounding with a gradient of one, quantization steps learned"""
    scale, layer = nn.Parameter(torch.tensor(0.3)), nn.Linear(3, 2)

    @compile
    def loss(x):
        w = layer.weight / scale
        q = (w + (w.round().clamp(-8, 7) - w).detach()) * scale
        return F.linear(x, q, layer.bias).pow(2).sum()

    found = []
    for i in range(4):
        value = loss(data(4, 3, seed=i))
        found.append((value.detach(), *torch.autograd.grad(value, [scale, layer.weight])))
    return found


@script
def dictionary_of_modules(compile):
    """several heads chosen by name, one added on the way"""
    body, heads = nn.Linear(3, 4), nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 2)})

    @compile
    def forward(x, task):
        return heads[task](body(x).relu())

    first = [forward(data(2, 3, seed=i), "ab"[i % 2]) for i in range(4)]
    heads["c"] = nn.Linear(4, 3)
    return first, forward(data(2, 3), "c"), forward(data(2, 3), "a")


@script
def model_output_dataclass(compile):
    """a forward that takes keyword switches and returns a dataclass"""

    @dataclass
    class Output:
        logits: Any
        loss: Any = None
        hidden: Any = None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, labels=None, output_hidden=False):
            h = self.a(x).tanh()
            out = self.b(h)
            loss = None if labels is None else F.cross_entropy(out, labels)
            return Output(out, loss, (x, h) if output_hidden else None)

    run, found = compile(Model()), []
    for i in range(4):
        out = run(data(2, 3, seed=i), labels(2, 2, seed=i) if i % 2 else None, output_hidden=i > 1)
        found.append((out.logits, out.loss, out.hidden))
    return found


@script
def named_tuple_state(compile):
    """a custom recurrent cell whose state is a named tuple"""
    state_of = namedtuple("State", "h c")
    cell = nn.Linear(5, 12)

    @compile
    def step(x, s):
        i, f, g = cell(torch.cat([x, s.h], 1)).chunk(3, 1)
        c = f.sigmoid() * s.c + i.sigmoid() * g.tanh()[:, :4]
        return state_of(c.tanh()[:, :3], c)

    s = state_of(torch.zeros(2, 3), torch.zeros(2, 4))
    for k in range(5):
        s = step(data(2, 2, seed=k), s)
    return s


@script
def running_buffers(compile):
    """a layer that keeps running statistics in buffers and a counter in Python"""

    class Whiten(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.training:
                self.seen += 1
                self.mean += (x.mean(0) - self.mean) / self.seen
            return x - self.mean

    layer = Whiten()
    run = compile(layer)
    found = [run(data(4, 3, seed=i)) for i in range(3)]
    layer.eval()
    return found, run(data(4, 3)), layer.mean, layer.seen, layer.calls


@script
def statistics_by_hooks(compile):
    """forward hooks that collect activations into a dictionary, removed later"""
    model, seen = mlp(3, 4, 2), {}
    handles = [
        layer.register_forward_hook(lambda m, a, out, name=name: seen.update({name: out.detach().std()}))
        for name, layer in model.named_children()
    ]
    run = compile(model)
    found = []
    for i in range(4):
        if i == 2:
            for h in handles[1:]:
                h.remove()
            seen.clear()
        found.append((run(data(5, 3, seed=i)), dict(seen)))
    return found


@script
def features_of_a_layer(compile):
    """Grad-CAM: activations and gradients of a layer by hooks within a compiled function"""
    conv, head = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(3, 2)
    kept = {}

    def keep(module, args, out):
        kept["a"] = out
        out.register_hook(lambda g: kept.update(g=g))

    conv.register_forward_hook(keep)

    @compile
    def cam(x):
        score = head(conv(x).relu().mean((2, 3)))[:, 0].sum()
        score.backward()
        weights = kept["g"].mean((2, 3), keepdim=True)
        return (weights * kept["a"]).sum(1).relu().detach()

    return [cam(data(1, 1, 6, 6, seed=i)) for i in range(3)]


@script
def lora(compile):
    """adapters around frozen layers, merged at the end"""

    class LoRA(nn.Module):
        def __init__(self, inner, rank):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            self.a = nn.Parameter(data(rank, inner.in_features) * 0.1)
            self.b = nn.Parameter(torch.zeros(inner.out_features, rank))
            self.merged = False

        def forward(self, x):
            return self.inner(x) if self.merged else self.inner(x) + x @ self.a.t() @ self.b.t()

        @torch.no_grad()
        def merge(self):
            self.inner.weight += self.b @ self.a
            self.merged = True

    model = nn.Sequential(LoRA(nn.Linear(4, 6), 2), nn.ReLU(), LoRA(nn.Linear(6, 1), 2))
    opt = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    run = compile(model)
    for i in range(4):
        opt.zero_grad()
        run(data(5, 4, seed=i)).pow(2).mean().backward()
        opt.step()
    before = run(data(2, 4))
    for m in model:
        if isinstance(m, LoRA):
            m.merge()
    return before, run(data(2, 4))


@script
def mixture_of_experts(compile):
    """tokens sent to experts by masks: shapes depend on values"""
    gate, experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    @compile
    def forward(x):
        weight, choice = gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(experts):
            rows = (choice == k).nonzero().flatten()
            if len(rows):
                out[rows] = expert(x[rows]) * weight[rows, None]
        return out

    return [forward(data(6, 4, seed=i)) for i in range(5)]


@script
def early_exit(compile):
    """layers that stop when the answer is sure"""
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])

    @compile
    @torch.no_grad()
    def forward(x):
        for depth, layer in enumerate(layers):
            x = layer(x).tanh() * 2
            if x.softmax(-1).max() > 0.6:
                return x, depth
        return x, len(layers)

    return [forward(data(1, 4, seed=i) * (i + 1)) for i in range(5)]


@script
def stochastic_depth(compile):
    """blocks dropped by Python's random while training"""
    import random

    blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = blocks

        def forward(self, x):
            for block in self.blocks:
                if self.training and random.random() < 0.3:
                    continue
                x = x + block(x).relu()
            return x

    random.seed(1)
    net = Net()
    run = compile(net)
    found = [run(data(2, 4, seed=i)) for i in range(4)]
    net.eval()
    return found, run(data(2, 4))


@script
def recursive_tree(compile):
    """a network that follows a tree of tuples"""
    leaf, join = nn.Embedding(5, 3), nn.Linear(6, 3)

    def encode(tree):
        if isinstance(tree, int):
            return leaf(torch.tensor(tree))
        return join(torch.cat([encode(tree[0]), encode(tree[1])])).tanh()

    run = compile(encode)
    return [run(t) for t in ((0, 1), ((0, 1), 2), (0, (1, (2, 3))), ((0, 1), 2), ((3, 4), 2))]


@script
def graph_convolution(compile):
    """messages along a list of edges that differs from graph to graph"""
    lin = nn.Linear(3, 3)

    @compile
    def layer(x, edges):
        source, target = edges
        out = torch.zeros_like(x).index_add(0, target, lin(x)[source])
        degree = torch.bincount(target, minlength=len(x)).clamp(min=1)
        return out / degree[:, None]

    return [layer(data(5, 3, seed=i), labels(5, 2, 4 + i, seed=i)) for i in range(5)]


@script
def fourier_layer(compile):
    """a spectral convolution with complex weights"""
    weight = nn.Parameter(torch.complex(data(3, 3), data(3, 3, seed=1)) * 0.1)

    @compile
    def layer(x):
        modes = torch.fft.rfft(x, dim=-1)
        kept = torch.einsum("bim,io->bom", modes[..., :3], weight)
        return torch.fft.irfft(F.pad(kept, (0, modes.shape[-1] - 3)), n=x.shape[-1])

    found = []
    for i in range(3):
        out = layer(data(2, 3, 8, seed=i))
        found.append((out.detach(), torch.autograd.grad(out.pow(2).sum(), weight)[0].abs()))
    return found


@script
def attention_written_out(compile):
    """rotary attention with grouped heads and a mask that is cached by length"""
    qkv, cache = nn.Linear(8, 16), {}

    def mask(n):
        if n not in cache:
            cache[n] = torch.full((n, n), -math.inf).triu(1)
        return cache[n]

    def rotate(x, angles):
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    @compile
    def attend(x):
        n = x.shape[1]
        angles = torch.arange(n)[:, None] * torch.tensor([1.0, 0.1])
        q, k, v = qkv(x).split([8, 4, 4], -1)
        q, k, v = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        scores = rotate(q, angles) @ rotate(k, angles).transpose(-1, -2) / 2 + mask(n)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    return [attend(data(2, n, 8, seed=n)) for n in (3, 5, 3, 7, 5)]


@script
def siamese_with_margin(compile):
    """triplets mined as the hardest of a batch"""
    net = mlp(4, 6, 2)
    opt = optim.SGD(net.parameters(), lr=0.1)

    @compile
    def step(x, y):
        z = F.normalize(net(x), dim=1)
        gap = torch.cdist(z, z)
        same = y[:, None] == y[None]
        far = gap.masked_fill(~same, -1.0).max(1).values
        near = gap.masked_fill(same, 9.0).min(1).values
        loss = F.relu(far - near + 0.3).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(8, 4, seed=i), labels(3, 8, seed=i)) for i in range(4)]


@script
def ensemble_by_vmap(compile):
    """three models with stacked weights under vmap"""
    models = [mlp(3, 4, 1) for _ in range(3)]
    weights, _ = torch.func.stack_module_state(models)

    @compile
    def forward(weights, x):
        return torch.func.vmap(lambda w: torch.func.functional_call(models[0], w, (x,)))(weights)

    return [forward(weights, data(2, 3, seed=i)) for i in range(3)]


@script
def hessian_of_a_model(compile):
    """second derivatives: a Hessian-vector product and the diagonal"""
    model = mlp(3, 4, 1)

    @compile
    def curvature(x, v):
        f = lambda t: model(t).sum()  # noqa: E731
        return torch.func.jvp(torch.func.grad(f), (x,), (v,))[1], torch.func.hessian(f)(x).diagonal()

    return [curvature(data(3, seed=i), data(3, seed=9 + i)) for i in range(3)]


@script
def compiled_parts_in_an_eager_model(compile):
    """submodules that were compiled separately, saved and loaded, moved to another type"""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    net[0], net[2] = compile(net[0]), compile(net[2])
    opt = optim.SGD(net.parameters(), lr=0.1)
    for i in range(4):
        opt.zero_grad()
        net(data(2, 3, seed=i)).pow(2).sum().backward()
        opt.step()
    weights = [p.clone() for p in net.parameters()]
    net.double()
    return weights, net(data(2, 3).double())


@script
def half_precision_inference(compile):
    """a model in bfloat16 with float32 norms"""
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).to(torch.bfloat16)
    run = compile(model)
    with torch.inference_mode():
        return [run(data(3, 4, seed=i).bfloat16()).float().round(decimals=1) for i in range(3)]


@script
def model_in_numpy_and_back(compile):
    """a step that goes through numpy in its middle"""
    a, b = nn.Linear(3, 4), nn.Linear(4, 2)

    @compile
    @torch.no_grad()
    def forward(x):
        h = a(x).relu().numpy()
        h = np.sort(h, axis=1) / (1e-6 + np.abs(h).max())
        return b(torch.from_numpy(h))

    return [forward(data(3, 3, seed=i)) for i in range(4)]
