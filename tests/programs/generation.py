"""Sampling, search, reinforcement learning, data and numerics."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tracecomp as torch
from tests.programs.registry import data, labels, mlp, script
from tracecomp import nn, optim

F = nn.functional


# ---- generation


@script
def greedy_decoding_with_a_cache(compile):
    """one token at a time, keys and values joined to a cache that grows"""
    emb, qkv, out = nn.Embedding(7, 4), nn.Linear(4, 12), nn.Linear(4, 7)

    @compile
    @torch.no_grad()
    def step(token, past):
        q, k, v = qkv(emb(token)).chunk(3, -1)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        h = (q @ k.transpose(1, 2) / 2).softmax(-1) @ v
        return out(h[:, -1]).argmax(-1, keepdim=True), (k, v)

    token, past, text = torch.tensor([[1]]), None, []
    for _ in range(12):
        token, past = step(token, past)
        text.append(token.item())
    return text, past[0].shape


@script
def sampling_until_the_end(compile):
    """generate(): a loop that ends at a token, with top-k and a temperature, all of it compiled"""
    emb, rnn, out = nn.Embedding(6, 4), nn.GRUCell(4, 5), nn.Linear(5, 6)

    @compile
    @torch.no_grad()
    def generate(start, temperature, limit):
        h, token, text = torch.zeros(1, 5), start, []
        for _ in range(limit):
            h = rnn(emb(token), h)
            best, where = (out(h) / temperature).topk(3)
            token = where.gather(1, torch.multinomial(best.softmax(-1), 1)).squeeze(1)
            text.append(token.item())
            if text[-1] == 0:
                break
        return text

    return [generate(torch.tensor([k]), 0.7 + k / 4, 6) for k in (1, 2, 3, 1)]


@script
def beam_search_of_objects(compile):
    """hypotheses as dataclasses in a list that Python sorts, around a compiled model"""

    @dataclass(frozen=True)
    class Beam:
        tokens: tuple[int, ...]
        score: float

    model = compile(nn.Sequential(nn.Embedding(5, 6), nn.Flatten(), nn.Linear(6, 5), nn.LogSoftmax(-1)))
    beams = [Beam((0,), 0.0)]
    with torch.no_grad():
        for _ in range(4):
            last = torch.tensor([[b.tokens[-1]] for b in beams])
            grown = [
                Beam((*b.tokens, k), b.score + p)
                for b, row in zip(beams, model(last).tolist(), strict=True)
                for k, p in enumerate(row)
            ]
            beams = sorted(grown, key=lambda b: -b.score)[:3]
    return [(b.tokens, round(b.score, 4)) for b in beams]


@script
def diffusion_sampler(compile):
    """DDPM: noise added at random times in training, a loop over all times in sampling"""
    net, steps = mlp(3, 8, 2), 5
    beta = torch.linspace(0.01, 0.2, steps)
    kept = (1 - beta).cumprod(0)
    opt = optim.Adam(net.parameters(), lr=1e-2)

    @compile
    def train(x):
        t = torch.randint(0, steps, (len(x),))
        noise = torch.randn_like(x)
        mixed = kept[t, None].sqrt() * x + (1 - kept[t, None]).sqrt() * noise
        loss = F.mse_loss(net(torch.cat([mixed, t[:, None] / steps], 1)), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    @compile
    @torch.no_grad()
    def sample(n):
        x = torch.randn(n, 2)
        for t in reversed(range(steps)):
            guess = net(torch.cat([x, torch.full((n, 1), t / steps)], 1))
            x = (x - beta[t] / (1 - kept[t]).sqrt() * guess) / (1 - beta[t]).sqrt()
            if t:
                x = x + beta[t].sqrt() * torch.randn_like(x)
        return x

    return [train(data(6, 2, seed=i)) for i in range(3)], sample(3), sample(3)


@script
def neural_style(compile):
    """an image optimized against Gram matrices of two layers"""
    layers = nn.ModuleList([nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1)]).requires_grad_(False)

    def grams(x):
        found = []
        for layer in layers:
            x = layer(x).relu()
            flat = x.flatten(2)
            found.append(flat @ flat.transpose(1, 2) / flat.shape[-1])
        return found

    wanted, image = grams(data(1, 1, 6, 6)), data(1, 1, 6, 6, seed=1).requires_grad_()
    opt = optim.Adam([image], lr=0.1)

    @compile
    def step():
        opt.zero_grad()
        loss = sum(F.mse_loss(a, b) for a, b in zip(grams(image), wanted, strict=True))
        loss.backward()
        opt.step()
        with torch.no_grad():
            image.clamp_(-2, 2)
        return loss

    return [step() for _ in range(4)], image


# ---- reinforcement learning


class Corridor:
    """An environment: a walk to the right end."""

    def __init__(self) -> None:
        self.place = 0

    def reset(self) -> np.ndarray[Any, Any]:
        self.place = 2
        return self.seen()

    def seen(self) -> np.ndarray[Any, Any]:
        return np.eye(5, dtype=np.float32)[self.place]

    def step(self, action: int) -> tuple[np.ndarray[Any, Any], float, bool]:
        self.place = min(max(self.place + (1 if action else -1), 0), 4)
        return self.seen(), float(self.place == 4), self.place in (0, 4)


@script
def reinforce(compile):
    """episodes of an environment in numpy, log-probabilities and rewards in lists of the policy"""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.saved, self.rewards = mlp(5, 8, 2), [], []

        def forward(self, x):
            return self.net(x).softmax(-1)

    policy, env = Policy(), Corridor()
    opt, act = optim.Adam(policy.parameters(), lr=1e-2), compile(policy)

    def finish():
        returns, total = deque(), 0.0
        for r in reversed(policy.rewards):
            total = r + 0.9 * total
            returns.appendleft(total)
        loss = torch.stack([-p * r for p, r in zip(policy.saved, returns, strict=True)]).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        policy.saved.clear()
        policy.rewards.clear()
        return loss.item()

    losses = []
    for _ in range(3):
        seen, done, count = env.reset(), False, 0
        while not done and count < 8:
            chosen = torch.distributions.Categorical(act(torch.from_numpy(seen)))
            action = chosen.sample()
            policy.saved.append(chosen.log_prob(action))
            seen, reward, done = env.step(action.item())
            policy.rewards.append(reward)
            count += 1
        losses.append(finish())
    return losses


@script
def actor_critic_compiled_whole(compile):
    """selecting an action, saving to lists of the model, as one compiled function"""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = nn.Linear(5, 6), nn.Linear(6, 2), nn.Linear(6, 1)
            self.saved = []

    model, env = Model(), Corridor()
    opt = optim.SGD(model.parameters(), lr=0.05)

    @compile
    def select(seen):
        h = model.body(torch.from_numpy(seen)).relu()
        chosen = torch.distributions.Categorical(logits=model.actor(h))
        action = chosen.sample()
        model.saved.append((chosen.log_prob(action), model.critic(h)))
        return action.item()

    losses = []
    for _ in range(2):
        seen, rewards, done = env.reset(), [], False
        while not done and len(rewards) < 6:
            seen, reward, done = env.step(select(seen))
            rewards.append(reward)
        loss = sum(
            -p * (r - v.item()) + F.smooth_l1_loss(v, torch.tensor([r]))
            for (p, v), r in zip(model.saved, rewards, strict=True)
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        model.saved.clear()
    return losses


@script
def deep_q_learning(compile):
    """a replay memory in a deque, epsilon that decays, a target network copied now and then"""
    net, target, env = mlp(5, 8, 2), mlp(5, 8, 2), Corridor()
    target.load_state_dict(net.state_dict())
    opt, memory, rng = optim.Adam(net.parameters(), lr=1e-2), deque(maxlen=20), random.Random(4)
    state = {"steps": 0}

    @compile
    def act(seen):
        state["steps"] += 1
        if rng.random() < 0.9 ** state["steps"]:
            return rng.randrange(2)
        with torch.no_grad():
            return net(torch.from_numpy(seen)).argmax().item()

    @compile
    def learn(s, a, r, t, ends):
        with torch.no_grad():
            wanted = r + 0.9 * target(t).max(1).values * (1 - ends)
        loss = F.smooth_l1_loss(net(s).gather(1, a[:, None]).squeeze(1), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    losses, seen = [], env.reset()
    for k in range(12):
        action = act(seen)
        later, reward, done = env.step(action)
        memory.append((seen, action, reward, later, done))
        seen = env.reset() if done else later
        if len(memory) >= 4:
            s, a, r, t, ends = zip(*rng.sample(list(memory), 4), strict=True)
            losses.append(
                learn(
                    torch.tensor(np.stack(s)),
                    torch.tensor(a),
                    torch.tensor(r),
                    torch.tensor(np.stack(t)),
                    torch.tensor(ends).float(),
                )
            )
        if k % 5 == 0:
            target.load_state_dict(net.state_dict())
    return losses, state


@script
def evolution_strategy(compile):
    """populations of perturbed weights, ranked; no gradients"""
    weights = torch.zeros(6)

    @compile
    def generation(w, x, y):
        noise = torch.randn(8, 6)
        scores = -((x @ (w + 0.1 * noise).t() - y[:, None]) ** 2).mean(0)
        ranks = scores.argsort().argsort() / 7 - 0.5
        return w + 0.5 * (ranks[:, None] * noise).mean(0), scores.max()

    best = []
    for i in range(5):
        weights, score = generation(weights, data(10, 6, seed=i), data(10, seed=i))
        best.append(score)
    return weights, best


@script
def monte_carlo_tree(compile):
    """a tree of Python objects whose leaves are valued by a compiled network"""

    class Node:
        def __init__(self, prior):
            self.prior, self.visits, self.total, self.children = prior, 0, 0.0, {}

    net = mlp(3, 6, 4)

    @compile
    @torch.no_grad()
    def evaluate(x):
        out = net(x)
        return out[:3].softmax(-1).tolist(), out[3].tanh().item()

    root = Node(1.0)
    for _ in range(8):
        node, path, x = root, [root], torch.zeros(3)
        while node.children:
            move, node = max(
                node.children.items(),
                key=lambda kv: (
                    kv[1].total / (kv[1].visits or 1) + kv[1].prior * math.sqrt(path[-1].visits) / (1 + kv[1].visits)
                ),
            )
            x = x + torch.eye(3)[move]
            path.append(node)
        priors, value = evaluate(x)
        node.children = {k: Node(p) for k, p in enumerate(priors)}
        for n in path:
            n.visits += 1
            n.total += value
    return [(k, c.visits, round(c.total, 3)) for k, c in root.children.items()]


# ---- data and Python around


@script
def tokenizer_and_bag_of_words(compile):
    """strings tokenized inside of the compiled function with a vocabulary that grows"""
    vocabulary, bag = {"<unk>": 0}, nn.EmbeddingBag(12, 3)

    @compile
    def encode(text, grow):
        ids = []
        for word in text.lower().split():
            if grow and word not in vocabulary:
                vocabulary[word] = len(vocabulary)
            ids.append(vocabulary.get(word, 0))
        return bag(torch.tensor([ids]))

    texts = ["The cat sat", "the dog sat", "a cat", "the cat sat"]
    return [encode(t, k < 3) for k, t in enumerate(texts)], vocabulary


@script
def collating_dictionaries(compile):
    """a list of dictionaries of tensors collated, normalized and split within the step"""

    @compile
    def collate(rows):
        keys = rows[0].keys()
        batch = {k: torch.stack([row[k] for row in rows]) for k in keys}
        batch["x"] = (batch["x"] - batch["x"].mean()) / (batch["x"].std() + 1e-6)
        return {k: v.chunk(2) for k, v in batch.items()}

    return [
        collate([{"x": data(3, seed=i + j), "y": labels(5, 1, seed=j)} for j in range(n)])
        for i, n in enumerate((4, 4, 6))
    ]


@script
def timing_and_printing(compile):
    """a step that measures its time and prints its loss now and then"""
    model, seen = nn.Linear(3, 1), []

    @compile
    def step(x, k):
        start = time.perf_counter()
        loss = model(x).pow(2).mean()
        if k % 2 == 0:
            print(f"step {k}: loss {loss.item():.4f}")
        seen.append(time.perf_counter() - start >= 0)
        return loss

    return [step(data(2, 3, seed=i), i) for i in range(4)], seen


@script
def configuration_by_names(compile):
    """layers looked up by the names of a nested dictionary that is edited"""
    config = {"activation": "relu", "norm": {"kind": "layer", "eps": 1e-5}, "scale": [1.0, 2.0]}
    layer = nn.Linear(4, 4)

    @compile
    def forward(x):
        h = getattr(F, config["activation"])(layer(x))
        if config["norm"]["kind"] == "layer":
            h = F.layer_norm(h, (4,), eps=config["norm"]["eps"])
        return sum(s * h for s in config["scale"])

    x, found = data(2, 4), []
    for change in (None, ("activation", "gelu"), ("norm", {"kind": "none"}), ("scale", [3.0])):
        if change is not None:
            config.update([change])
        found.append(forward(x))
    return found


@script
def registry_of_losses(compile):
    """functions registered by a decorator, chosen by argument"""
    registry = {}

    def register(fn):
        registry[fn.__name__] = fn
        return fn

    @register
    def l1(a, b):
        return (a - b).abs().mean()

    @register
    def huber(a, b, delta=1.0):
        gap = (a - b).abs()
        return torch.where(gap < delta, 0.5 * gap**2, delta * (gap - 0.5 * delta)).mean()

    @compile
    def loss(kind, a, b, **options):
        return registry[kind](a, b, **options)

    return [
        loss(kind, data(5), data(5, seed=1) * 2, **options)
        for kind, options in (
            ("l1", {}),
            ("huber", {}),
            ("huber", {"delta": 0.5}),
            ("huber", {"delta": 0.7}),
            ("l1", {}),
        )
    ]


@script
def priority_replay(compile):
    """a heap of Python tuples inside of a compiled function"""
    heap, net = [], nn.Linear(2, 1)

    @compile
    @torch.no_grad()
    def push(k, x):
        error = net(x).abs().sum().item()
        heapq.heappush(heap, (-error, k))
        return len(heap)

    counts = [push(k, data(1, 2, seed=k)) for k in range(5)]
    return counts, [k for _, k in sorted(heap)]


@script
def streaming_statistics(compile):
    """Welford's algorithm in attributes that are plain floats"""

    class Running:
        def __init__(self):
            self.n, self.mean, self.m2 = 0, 0.0, 0.0

        def add(self, x):
            self.n += 1
            gap = x - self.mean
            self.mean += gap / self.n
            self.m2 += gap * (x - self.mean)

    running = Running()

    @compile
    def step(x):
        running.add(x.mean().item())
        return (x - running.mean) / (1 + running.m2)

    return [step(data(5, seed=i)) for i in range(6)], vars(running)


@script
def counter_of_labels(compile):
    """a Counter and sets of Python made from tensors"""
    seen, names = Counter(), set()

    @compile
    def count(y):
        seen.update(y.tolist())
        names.update(f"class {k}" for k in y.unique().tolist())
        return torch.bincount(y, minlength=4) / len(y)

    return [count(labels(4, 6, seed=i)) for i in range(4)], dict(seen), sorted(names)


@script
def generator_of_batches(compile):
    """a Python generator consumed by the compiled function"""
    model = nn.Linear(3, 1)

    def stream():
        k = 0
        while True:
            yield data(2, 3, seed=k)
            k += 1

    batches = stream()

    @compile
    def step():
        return model(next(batches)).sum()

    return [step() for _ in range(4)]


@script
def retry_on_errors(compile):
    """exceptions raised and caught inside and outside"""

    class TooLarge(ValueError):
        pass

    @compile
    def step(x):
        if x.abs().max() > 2:
            raise TooLarge(f"{x.shape[0]} rows")
        return x.sum()

    found = []
    for i in range(6):
        x = data(3, seed=i) * (1 + i)
        while True:
            try:
                found.append(step(x))
                break
            except TooLarge as error:
                found.append(str(error))
                x = x / 2
    return found


@script
def immutable_state(compile):
    """a frozen dataclass replaced by each step, an integer and a generator key in it"""

    @dataclass(frozen=True)
    class State:
        weights: Any
        step: int = 0

    @compile
    def update(state, x):
        gradient = 2 * x.t() @ (x @ state.weights)
        return replace(state, weights=state.weights - 0.01 * gradient, step=state.step + 1)

    state = State(torch.ones(3, 1))
    for i in range(5):
        state = update(state, data(4, 3, seed=i))
    return state.weights, state.step


# ---- numerics


@script
def conjugate_gradients(compile):
    """a solver that stops by its residual"""

    @compile
    def solve(a, b):
        x, r = torch.zeros_like(b), b.clone()
        p, k = r.clone(), 0
        while r.norm() > 1e-3 and k < 10:
            alpha = (r @ r) / (p @ a @ p)
            x, old = x + alpha * p, r
            r = r - alpha * (a @ p)
            p = r + (r @ r) / (old @ old) * p
            k += 1
        return x

    def system(k):
        m = data(4, 4, seed=k)
        return m @ m.t() + 4 * torch.eye(4), data(4, seed=k)

    return [solve(*system(k)) for k in range(4)]


@script
def newton_with_a_jacobian(compile):
    """roots by Newton's method with torch.func.jacrev"""

    def f(x):
        return torch.stack([x[0] ** 2 + x[1] ** 2 - 4, x[0] * x[1] - 1])

    @compile
    def step(x):
        return x - torch.linalg.solve(torch.func.jacrev(f)(x), f(x))

    x, path = torch.tensor([2.0, 0.3]), []
    for _ in range(4):
        x = step(x)
        path.append(x)
    return path


@script
def adaptive_ode(compile):
    """Runge-Kutta steps accepted or refused by an error estimate, times in floats"""
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    @compile
    def attempt(y, h):
        k1 = matrix @ y
        k2 = matrix @ (y + h * k1)
        return y + h * (k1 + k2) / 2, (h * (k2 - k1) / 2).abs().max().item()

    y, t, h, steps = torch.tensor([1.0, 0.0]), 0.0, 0.5, 0
    while t < 1 and steps < 30:
        new, error = attempt(y, h)
        steps += 1
        if error < 1e-2:
            y, t = new, t + h
        h = min(0.5, 0.9 * h * math.sqrt(1e-2 / max(error, 1e-9)), max(1 - t, 1e-3))
    return y, round(t, 3), steps


@script
def kalman_filter(compile):
    """a filter over a sequence with state in a dictionary"""
    a, q, r = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), 0.01 * torch.eye(2), torch.tensor([[0.1]])
    h, state = torch.tensor([[1.0, 0.0]]), {"x": torch.zeros(2, 1), "p": torch.eye(2)}

    @compile
    def update(z):
        x, p = a @ state["x"], a @ state["p"] @ a.t() + q
        gain = p @ h.t() @ torch.linalg.inv(h @ p @ h.t() + r)
        state["x"], state["p"] = x + gain @ (z - h @ x), (torch.eye(2) - gain @ h) @ p
        return state["x"][0]

    return [update(data(1, 1, seed=i)) for i in range(6)], state


@script
def k_means_until_stable(compile):
    """clusters recomputed until no label changes"""

    @compile
    def fit(x, centers):
        before = None
        for _ in range(10):
            found = torch.cdist(x, centers).argmin(1)
            if before is not None and torch.equal(found, before):
                break
            before = found
            centers = torch.stack(
                [x[found == k].mean(0) if (found == k).any() else centers[k] for k in range(len(centers))]
            )
        return centers, found

    return [fit(data(12, 2, seed=i), data(3, 2, seed=9 + i)) for i in range(3)]


@script
def gaussian_process(compile):
    """hyper-parameters by the marginal likelihood with Cholesky factors"""
    scale, noise = nn.Parameter(torch.tensor(0.0)), nn.Parameter(torch.tensor(-1.0))
    opt = optim.Adam([scale, noise], lr=0.1)

    @compile
    def step(x, y):
        gap = (x[:, None] - x[None]).pow(2).sum(-1)
        k = (-0.5 * gap / scale.exp()).exp() + noise.exp() * torch.eye(len(x))
        low = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], low)
        loss = 0.5 * (y @ alpha).sum() + low.diagonal().log().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(6, 2, seed=1), data(6, seed=2)) for _ in range(4)], scale, noise


@script
def metropolis(compile):
    """a random walk that accepts by a number that torch draws, kept in a growing list"""
    chain = []

    @compile
    def step(x):
        new = x + 0.5 * torch.randn(2)
        if torch.rand(()).log() < 0.5 * (x @ x - new @ new):
            x = new
        chain.append(x)
        return x

    x = torch.zeros(2)
    for _ in range(6):
        x = step(x)
    return chain


@script
def game_of_life(compile):
    """a board on a torus advanced by convolution, a history kept as frozen sets"""
    kernel = torch.ones(1, 1, 3, 3)
    kernel[..., 1, 1] = 0
    seen = set()

    @compile
    def advance(board):
        around = F.conv2d(F.pad(board[None, None], (1, 1, 1, 1), mode="circular"), kernel)[0, 0]
        return ((around == 3) | ((around == 2) & (board == 1))).float()

    board = (data(6, 6) > 0.3).float()
    for _ in range(5):
        board = advance(board)
        seen.add(frozenset(map(tuple, board.nonzero().tolist())))
    return board, len(seen)


@script
def page_rank(compile):
    """a sparse matrix by its indices, iterated until the norm settles"""

    @compile
    def rank(edges, n):
        degree = torch.zeros(n).index_add(0, edges[0], torch.ones(edges.shape[1]))
        p = torch.full((n,), 1 / n)
        for _ in range(20):
            flow = (p / degree.clamp(min=1))[edges[0]]
            new = 0.15 / n + 0.85 * torch.zeros(n).index_add(0, edges[1], flow)
            if (new - p).abs().sum() < 1e-3:
                break
            p = new
        return p

    return [rank(labels(5, 2, 9, seed=i), 5) for i in range(3)]


@script
def spectrogram_features(compile):
    """windows, a Fourier transform and a filter bank over signals of several lengths"""
    window, bank = torch.hann_window(8), data(5, 3).abs()

    @compile
    def features(x):
        frames = x.unfold(-1, 8, 4) * window
        power = torch.fft.rfft(frames).abs() ** 2
        return (power @ bank + 1e-6).log().mean(-2)

    return [features(data(2, n, seed=n)) for n in (16, 24, 16, 40)]
