"""Training loops."""

from __future__ import annotations

import copy
import math
import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

import tracecomp as torch
from tests.programs.registry import data, labels, mlp, script
from tracecomp import nn, optim

F = nn.functional


@script
def trainer_class_with_history(compile):
    """a Trainer class that logs into dictionaries of lists and keeps the best weights"""

    class Trainer:
        def __init__(self, model):
            self.model, self.opt = model, optim.AdamW(model.parameters(), lr=1e-2)
            self.history, self.best, self.state = defaultdict(list), math.inf, None

        def step(self, x, y):
            self.model.train()
            self.opt.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.history["loss"].append(loss.item())
            return loss

    trainer = Trainer(mlp(4, 8, 3))
    step = compile(trainer.step)
    for epoch in range(6):
        loss = step(data(8, 4, seed=epoch), labels(3, 8, seed=epoch)).item()
        if loss < trainer.best:
            trainer.best, trainer.state = loss, copy.deepcopy(trainer.model.state_dict())
    return trainer.history, trainer.best, trainer.state


@script
def early_stopping(compile):
    """early stopping by a counter that the compiled step keeps"""

    class Stop:
        def __init__(self, patience):
            self.patience, self.best, self.bad = patience, None, 0

        def __call__(self, loss):
            if self.best is None or loss < self.best - 1e-3:
                self.best, self.bad = loss, 0
            else:
                self.bad += 1
            return self.bad >= self.patience

    model, stop = nn.Linear(3, 1), Stop(2)
    opt = optim.SGD(model.parameters(), lr=0.5)

    @compile
    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return stop(loss.item())

    x, seen = data(16, 3), []
    for _ in range(8):
        seen.append(step(x))
        if seen[-1]:
            break
    return seen, stop.best, stop.bad


@script
def gradient_accumulation(compile):
    """gradients of four small batches added, clipped, applied"""
    model = mlp(4, 8, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y, last):
        loss = F.mse_loss(model(x), y) / 4
        loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        return loss

    losses = []
    for i in range(8):
        losses.append(step(data(4, 4, seed=i), data(4, 1, seed=99 - i), i % 4 == 3))
    return losses, list(model.parameters())


@script
def mixup(compile):
    """mixup with numpy's beta distribution drawn inside of the step"""
    rng, model = np.random.default_rng(0), mlp(4, 8, 3)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        lam = rng.beta(0.4, 0.4)
        order = torch.tensor(rng.permutation(len(x)))
        out = model(lam * x + (1 - lam) * x[order])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(data(6, 4, seed=i), labels(3, 6, seed=i)) for i in range(4)]


@script
def cutout_augmentation(compile):
    """squares at positions of Python's random cut out of images"""
    conv = nn.Conv2d(1, 2, 3, padding=1)

    @compile
    def forward(x):
        top, left = random.randrange(6), random.randrange(6)
        mask = torch.ones_like(x)
        mask[:, :, top : top + 3, left : left + 3] = 0
        return conv(x * mask).mean()

    random.seed(3)
    return [forward(data(2, 1, 8, 8, seed=i)) for i in range(5)]


@script
def warmup_then_cosine(compile):
    """the rate written into the groups by a formula of a counter"""
    model = nn.Linear(3, 1)
    opt, count = optim.SGD(model.parameters(), lr=0.0), [0]

    def rate(k):
        return 0.1 * (k + 1) / 3 if k < 3 else 0.05 * (1 + math.cos(math.pi * (k - 3) / 5))

    @compile
    def step(x):
        for group in opt.param_groups:
            group["lr"] = rate(count[0])
        count[0] += 1
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()

    for i in range(8):
        step(data(5, 3, seed=i))
    return list(model.parameters()), opt.param_groups[0]["lr"]


@script
def schedule_with_logged_rate(compile):
    """OneCycleLR stepped inside of the step, which returns the last rate"""
    model = mlp(3, 4, 1)
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule, log = optim.lr_scheduler.OneCycleLR(opt, 0.3, total_steps=8), []

    @compile
    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        schedule.step()
        log.append({"loss": loss.item(), "lr": schedule.get_last_lr()[0]})

    for i in range(6):
        step(data(5, 3, seed=i))
    return log


@script
def reduce_on_plateau(compile):
    """ReduceLROnPlateau outside of a compiled step"""
    model = nn.Linear(3, 1)
    opt = optim.SGD(model.parameters(), lr=0.5)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)

    @compile
    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss

    for i in range(6):
        schedule.step(step(data(5, 3, seed=i % 2)).item())
    return list(model.parameters()), opt.param_groups[0]["lr"]


@script
def lbfgs_inside(compile):
    """LBFGS with its step inside of the compiled function"""
    model, x, y = mlp(2, 4, 1), data(12, 2), data(12, 1, seed=1)
    opt = optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    @compile
    def step():
        return opt.step(closure)

    return [step() for _ in range(3)]


@script
def lbfgs_with_a_compiled_closure(compile):
    """LBFGS outside, its closure compiled"""
    w = nn.Parameter(torch.tensor([-1.2, 1.0]))
    opt = optim.LBFGS([w], lr=0.3, max_iter=5, line_search_fn="strong_wolfe")

    @compile
    def closure():
        opt.zero_grad()
        loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
        loss.backward()
        return loss

    return [opt.step(closure) for _ in range(4)], w


@script
def gan_in_two_steps(compile):
    """a GAN: discriminator and generator updated in turn, noise drawn inside"""
    gen, dis = mlp(2, 8, 3), mlp(3, 8, 1)
    opt_g, opt_d = (optim.Adam(m.parameters(), lr=1e-2, betas=(0.5, 0.999)) for m in (gen, dis))

    @compile
    def discriminate(real):
        fake = gen(torch.randn(len(real), 2)).detach()
        loss = F.softplus(-dis(real)).mean() + F.softplus(dis(fake)).mean()
        opt_d.zero_grad()
        loss.backward()
        opt_d.step()
        return loss

    @compile
    def generate(n):
        loss = F.softplus(-dis(gen(torch.randn(n, 2)))).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()
        return loss

    return [(discriminate(data(6, 3, seed=i)), generate(6)) for i in range(4)]


@script
def wgan_with_penalty(compile):
    """a critic with a gradient penalty, five critic steps for each generator step"""
    gen, critic = mlp(2, 6, 3), mlp(3, 6, 1)
    opt_g, opt_c = (optim.RMSprop(m.parameters(), lr=1e-3) for m in (gen, critic))

    @compile
    def step(real, k):
        fake = gen(torch.randn(len(real), 2))
        if k % 3 == 2:
            loss = -critic(fake).mean()
            opt_g.zero_grad()
            loss.backward()
            opt_g.step()
            return loss
        mix = torch.rand(len(real), 1)
        between = (mix * real + (1 - mix) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        return loss

    return [step(data(5, 3, seed=i), i) for i in range(6)]


@script
def moving_average_of_weights(compile):
    """an EMA class with shadow weights in a dictionary, swapped in for evaluation"""

    class EMA:
        def __init__(self, model, decay):
            self.model, self.decay, self.step = model, decay, 0
            self.shadow = {k: v.clone() for k, v in model.state_dict().items()}

        def update(self):
            self.step += 1
            decay = min(self.decay, (1 + self.step) / (10 + self.step))
            for k, v in self.model.state_dict().items():
                self.shadow[k] = decay * self.shadow[k] + (1 - decay) * v

    model = mlp(3, 4, 1)
    ema, opt = EMA(model, 0.99), optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
        with torch.no_grad():
            ema.update()

    for i in range(5):
        step(data(4, 3, seed=i))
    model.load_state_dict(ema.shadow)
    return model(data(2, 3)), ema.step


@script
def stochastic_weight_averaging(compile):
    """AveragedModel and SWALR, batch statistics updated at the end"""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    opt = optim.SGD(model.parameters(), lr=0.1)
    averaged, schedule = optim.swa_utils.AveragedModel(model), optim.swa_utils.SWALR(opt, swa_lr=0.05)

    @compile
    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss

    for i in range(6):
        step(data(8, 3, seed=i))
        if i > 2:
            averaged.update_parameters(model)
            schedule.step()
    optim.swa_utils.update_bn([data(8, 3, seed=k) for k in range(3)], averaged)
    return averaged(data(4, 3)), opt.param_groups[0]["lr"]


@script
def loss_scaling_by_hand(compile):
    """a scale that is halved on infinities and doubled after successes, kept as a Python float"""
    model = nn.Linear(3, 1)
    opt, state = optim.SGD(model.parameters(), lr=0.01), {"scale": 8.0, "good": 0}

    @compile
    def step(x):
        opt.zero_grad()
        (model(x).pow(2).mean() * state["scale"]).backward()
        if all(p.grad.isfinite().all() for p in model.parameters()):
            for p in model.parameters():
                p.grad /= state["scale"]
            opt.step()
            state["good"] += 1
            if state["good"] % 2 == 0:
                state["scale"] *= 2
        else:
            state["scale"] /= 2

    for i in range(6):
        step(data(4, 3, seed=i) * (math.inf if i == 3 else 1))
    return state, list(model.parameters())


@script
def grad_scaler_and_autocast(compile):
    """autocast to bfloat16 and a GradScaler"""
    model = mlp(4, 8, 2)
    opt, scaler = optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=16.0)

    @compile
    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.float().round(decimals=1)

    return [step(data(6, 4, seed=i), labels(2, 6, seed=i)) for i in range(4)], scaler.get_scale()


@script
def curriculum_of_lengths(compile):
    """sequences that get longer epoch by epoch"""
    rnn, head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 1)
    opt = optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)

    @compile
    def step(x):
        opt.zero_grad()
        out, _ = rnn(x)
        loss = (head(out).squeeze(-1) - x.sum(-1).cumsum(1)).pow(2).mean()
        loss.backward()
        opt.step()
        return loss

    return [step(data(3, 2 + i, 2, seed=i)) for i in range(7)]


@script
def buckets_of_batches(compile):
    """padded batches of several lengths with a mask made from a list of lengths"""
    emb, head = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2)

    @compile
    def forward(ids, lengths):
        mask = torch.arange(ids.shape[1])[None] < torch.tensor(lengths)[:, None]
        pooled = (emb(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.cross_entropy(head(pooled), torch.zeros(len(lengths), dtype=torch.int64))

    return [forward(labels(9, 3, n, seed=n), [1, n - 1, n]) for n in (4, 6, 4, 9, 5, 6)]


@script
def losses_in_a_dictionary(compile):
    """several losses with weights from a configuration that changes while training"""

    @dataclass
    class Config:
        weights: dict = field(default_factory=lambda: {"mse": 1.0, "l1": 0.1})
        clip: float = 1.0

    config, model = Config(), mlp(3, 5, 2)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        out = model(x)
        losses = {"mse": F.mse_loss(out, y), "l1": F.l1_loss(out, y), "norm": out.norm()}
        total = sum(config.weights.get(name, 0.0) * value for name, value in losses.items())
        opt.zero_grad()
        total.backward()
        nn.utils.clip_grad_value_(model.parameters(), config.clip)
        opt.step()
        return {k: v.detach() for k, v in losses.items()}

    seen = []
    for i in range(6):
        if i == 3:
            config.weights["norm"] = 0.01
            config.clip = 0.1
        seen.append(step(data(4, 3, seed=i), data(4, 2, seed=9 - i)))
    return seen


@script
def callbacks_of_a_trainer(compile):
    """a list of callback objects called before and after each step"""

    class Callback:
        def before(self, trainer):
            pass

        def after(self, trainer, loss):
            pass

    class Log(Callback):
        def __init__(self):
            self.window = deque(maxlen=3)

        def after(self, trainer, loss):
            self.window.append(loss.item())

    class Freeze(Callback):
        def before(self, trainer):
            trainer.model[0].requires_grad_(trainer.count % 2 == 0)

    class Trainer:
        def __init__(self):
            self.model, self.callbacks, self.count = mlp(3, 4, 1), [Log(), Freeze()], 0
            self.opt = optim.SGD(self.model.parameters(), lr=0.1)

        def step(self, x):
            for c in self.callbacks:
                c.before(self)
            self.opt.zero_grad()
            loss = self.model(x).pow(2).mean()
            loss.backward()
            self.opt.step()
            self.count += 1
            for c in self.callbacks:
                c.after(self, loss)

    trainer = Trainer()
    step = compile(trainer.step)
    for i in range(6):
        step(data(4, 3, seed=i))
    return list(trainer.model.parameters()), list(trainer.callbacks[0].window), trainer.count


@script
def epoch_over_a_loader(compile):
    """a whole epoch over a DataLoader as one compiled function"""
    rows = torch.utils.data.TensorDataset(data(10, 3), data(10, 1, seed=1))
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    model = mlp(3, 4, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def epoch():
        total, count = 0.0, 0
        for x, y in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            total += loss.item() * len(x)
            count += len(x)
        return total / count

    return [epoch() for _ in range(3)]


@script
def validation_with_metrics(compile):
    """a confusion matrix filled by evaluation under no_grad, precision and recall from it"""
    model, matrix = mlp(4, 6, 3), torch.zeros(3, 3)

    @compile
    @torch.no_grad()
    def evaluate(x, y):
        model.eval()
        guess = model(x).argmax(1)
        matrix.index_put_((y, guess), torch.ones(len(y)), accumulate=True)
        return (guess == y).float().mean()

    accuracy = [evaluate(data(7, 4, seed=i), labels(3, 7, seed=i)) for i in range(4)]
    return accuracy, matrix, matrix.diag() / matrix.sum(1).clamp(min=1)


@script
def layerwise_rates(compile):
    """parameter groups with rates that decay by depth, and none for biases"""
    model = mlp(3, 4, 4, 1)
    groups = [
        {"params": [p], "lr": 0.1 * 0.5**i, "weight_decay": 0.0 if p.dim() == 1 else 0.1}
        for i, p in enumerate(model.parameters())
    ]
    opt = optim.AdamW(groups)

    @compile
    def step(x):
        opt.zero_grad(set_to_none=True)
        model(x).pow(2).mean().backward()
        opt.step()

    for i in range(4):
        step(data(4, 3, seed=i))
    return list(model.parameters())


@script
def gradual_unfreezing(compile):
    """one more layer trained each epoch, added to the optimizer as a group"""
    model = mlp(3, 4, 4, 1).requires_grad_(False)
    layers = [m for m in model if isinstance(m, nn.Linear)][::-1]
    opt = optim.SGD(layers[0].requires_grad_(True).parameters(), lr=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()

    for epoch in range(6):
        if epoch in (2, 4):
            opt.add_param_group({"params": list(layers[epoch // 2].requires_grad_(True).parameters())})
        step(data(4, 3, seed=epoch))
    return list(model.parameters())


@script
def checkpoint_and_resume(compile):
    """saving to memory in the middle and continuing with new objects"""
    import io

    def make():
        model = mlp(3, 4, 1)
        return model, optim.Adam(model.parameters(), lr=1e-2)

    def stepper(model, opt):
        @compile
        def step(x):
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss

        return step

    model, opt = make()
    step = stepper(model, opt)
    losses = [step(data(4, 3, seed=i)) for i in range(3)]
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    model, opt = make()
    model.load_state_dict(saved["model"])
    opt.load_state_dict(saved["opt"])
    step = stepper(model, opt)
    return losses, [step(data(4, 3, seed=i)) for i in range(3, 6)]


@script
def two_phases_with_one_step(compile):
    """pretraining by reconstruction, then classification, chosen by a string"""
    encoder, decoder, head = nn.Linear(5, 3), nn.Linear(3, 5), nn.Linear(3, 2)
    opt = optim.SGD([*encoder.parameters(), *decoder.parameters(), *head.parameters()], lr=0.1)

    @compile
    def step(phase, x, y=None):
        z = encoder(x).relu()
        loss = F.mse_loss(decoder(z), x) if phase == "pretrain" else F.cross_entropy(head(z), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    first = [step("pretrain", data(6, 5, seed=i)) for i in range(3)]
    return first, [step("classify", data(6, 5, seed=i), y=labels(2, 6, seed=i)) for i in range(3)]


@script
def sharpness_aware(compile):
    """SAM: weights moved along the gradient and back within the step"""
    model = mlp(3, 5, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        moves = [0.05 * p.grad / (norm + 1e-12) for p in model.parameters()]
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        opt.step()
        return loss

    return [step(data(4, 3, seed=i)) for i in range(4)]


@script
def optimizer_of_ones_own(compile):
    """an Optimizer subclass with state made at its first step (Lion)"""

    class Lion(optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99)):
            super().__init__(params, {"lr": lr, "betas": betas})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["m"] = torch.zeros_like(p)
                    a, b = group["betas"]
                    p.add_((a * state["m"] + (1 - a) * p.grad).sign(), alpha=-group["lr"])
                    state["m"].mul_(b).add_(p.grad, alpha=1 - b)

    model = mlp(3, 4, 1)
    opt = Lion(model.parameters())

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()

    for i in range(5):
        step(data(4, 3, seed=i))
    return list(model.parameters())


@script
def gradients_by_hand(compile):
    """plain tensors with requires_grad, updated under no_grad, no optimizer"""
    w, b = torch.zeros(3, requires_grad=True), torch.zeros(1, requires_grad=True)

    @compile
    def step(x, y):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad.zero_()
        return loss

    return [step(data(6, 3, seed=i), data(6, seed=i)) for i in range(5)], w, b


@script
def functional_training(compile):
    """weights in a dictionary, torch.func.grad, new weights returned"""
    model = mlp(3, 4, 1)
    weights = {k: v.detach().clone() for k, v in model.named_parameters()}

    @compile
    def update(weights, x):
        def loss(w):
            return torch.func.functional_call(model, w, (x,)).pow(2).mean()

        grads = torch.func.grad(loss)(weights)
        return {k: v - 0.1 * grads[k] for k, v in weights.items()}

    for i in range(4):
        weights = update(weights, data(4, 3, seed=i))
    return weights


@script
def regularized_by_hooks(compile):
    """gradient hooks on parameters that add noise of a seeded generator and scale"""
    model, generator = nn.Linear(3, 2), torch.Generator().manual_seed(5)
    for p in model.parameters():
        p.register_hook(lambda g: 0.5 * g + 0.01 * torch.randn(g.shape, generator=generator))
    opt = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()

    for i in range(4):
        step(data(4, 3, seed=i))
    return list(model.parameters())
