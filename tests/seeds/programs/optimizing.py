"""Optimizers, parameter groups, schedules, clipping."""

import copy

import tracecomp as torch
from tests.seeds.harness import normal, program, settle
from tracecomp import nn, optim
from tracecomp.autograd import Variable
from tracecomp.optim import SGD
from tracecomp.optim.lr_scheduler import ExponentialLR, StepLR


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def losses(run, optimizer, model, steps=6, clip=None):
    x, y = tensor(8, 4), tensor(8, 2, seed=1)

    @run.compile
    def step():
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)
        optimizer.step()
        return loss.detach()

    return [step() for _ in range(steps)], [p.detach().clone() for p in model.parameters()]


@program("002:1599-1621, 003:32, 002:1628-1631")
def family_of_optimizers(run):
    kinds = {
        "sgd": lambda p: optim.SGD(p, lr=0.01),
        "momentum": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4),
        "adam": lambda p: optim.Adam(p, lr=0.001), "adamw": lambda p: optim.AdamW(p, lr=0.01),
        "asgd": lambda p: optim.ASGD(p, lr=0.01), "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
        "adagrad": lambda p: optim.Adagrad(p, lr=0.01), "adadelta": lambda p: optim.Adadelta(p),
    }  # fmt: skip
    found = {}
    for name, make in kinds.items():
        model = settle(nn.Linear(4, 2))
        found[name] = losses(run, make(model.parameters()), model)
    return found


@program("002:1590-1597, 002:1147")
def update_by_hand(run):
    net = settle(nn.Linear(4, 2))
    x = tensor(3, 4)

    @run.compile
    def step():
        net.zero_grad()
        (net(x) ** 2).sum().backward()
        learning_rate = 0.01
        for f in net.parameters():
            f.data.sub_(f.grad.data * learning_rate)

    for _ in range(4):
        step()
    return [p.detach() for p in net.parameters()]


@program("002:4171-4199, 002:4431-4440")
def groups_and_learning_rates(run):
    model = settle(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    biases = (param for name, param in model.named_parameters() if name[-4:] == "bias")
    others = (param for name, param in model.named_parameters() if name[-4:] != "bias")
    try:
        torch.optim.SGD([{"parameters": biases, "weight_decay": 0}], lr=1e-2)
    except KeyError as error:
        misnamed = "params" in str(error)
    biases = (param for name, param in model.named_parameters() if name[-4:] == "bias")
    parameters = [{"params": biases, "weight_decay": 0, "lr": 0.1}, {"params": others}]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4)
    lr = next(iter(optimizer.param_groups))["lr"]
    all_lr = [group["lr"] for group in optimizer.param_groups]
    return misnamed, lr, all_lr, losses(run, optimizer, model)


@program("002:4183-4187")
def clipping(run):
    model = settle(nn.Linear(4, 2))
    found = losses(run, optim.SGD(model.parameters(), lr=0.1), model, clip=0.05)
    return found


@program("002:4206-4227")
def schedules(run):
    found = {}
    for name, make in {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=8),
        "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, milestones=[3, 6], gamma=0.1),
        "warmup": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lr_lambda=lambda t: t / 10),
        "exponential": lambda o: ExponentialLR(o, 0.9),
    }.items():
        model = settle(nn.Linear(4, 2))
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        scheduler = make(optimizer)
        x = tensor(8, 4)

        @run.compile
        def step(model=model, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        rates = []
        for _ in range(8):
            rates.append((scheduler.get_last_lr()[0], step()))
            scheduler.step()
        found[name] = rates, model.weight.detach().clone()
    return found


@program("002:4206-4211", compiles=False)
def plateau(run):
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)
    rates = []
    for accuracy in (0.1, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1):
        scheduler.step(accuracy)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@program("002:4234-4248", compiles=False)
def two_schedules_on_one_optimizer(run):
    model = [torch.nn.Parameter(torch.zeros(2, 2))]
    optimizer = SGD(model, 0.1)
    scheduler1 = ExponentialLR(optimizer, gamma=0.9)
    scheduler2 = StepLR(optimizer, step_size=3, gamma=0.1)
    rates = []
    for _ in range(4):
        rates.append(scheduler2.get_last_lr()[0])
        optimizer.step()
        scheduler1.step()
        scheduler2.step()
    return rates


@program("002:1062, 002:1142, 002:4276-4278")
def state_moves_to_another_optimizer(run):
    model = settle(nn.Linear(4, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    losses(run, optimizer, model, steps=3)
    scheduler.step()
    other = settle(nn.Linear(4, 2))
    other.load_state_dict(model.state_dict())
    resumed = optim.Adam(other.parameters(), lr=0.5)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again = StepLR(resumed, step_size=2, gamma=0.5)
    again.load_state_dict(scheduler.state_dict())
    one, two = losses(run, optimizer, model), losses(run, resumed, other)
    assert all(torch.equal(a, b) for a, b in zip(one[1], two[1], strict=True))
    return one, resumed.param_groups[0]["lr"], again.last_epoch


@program("002:3219-3256")
def two_sigmoid_layers_on_variables(run):
    x = Variable(tensor(4, 1), requires_grad=False)
    y = Variable(tensor(3, 1, seed=1), requires_grad=False)
    w1 = Variable(tensor(5, 4, seed=2), requires_grad=True)
    w2 = Variable(tensor(3, 5, seed=3), requires_grad=True)
    assert w1.grad is None and w1.data.shape == (5, 4)

    def model_forward(x):
        return torch.nn.functional.sigmoid(w2 @ torch.nn.functional.sigmoid(w1 @ x))

    criterion = nn.MSELoss()
    optimizer = optim.SGD([w1, w2], lr=0.001)

    @run.compile
    def step():
        loss = criterion(model_forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step() for _ in range(10)], w1.detach(), str(w1)


@program("002:410-422")
def fused_adam(run):
    results = []
    for options in ({}, {"fused": True}, {"foreach": True}):
        model = settle(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
        optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1, **options)
        results.append((losses(run, optimizer, model), [p.detach() for p in model.parameters()]))
    return results
