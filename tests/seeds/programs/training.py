"""Whole training programs."""

import argparse
import threading

import numpy as np

import tracecomp as torch
from tests.seeds.harness import integers, normal, program, settle
from tracecomp import nn, optim
from tracecomp.utils.data import DataLoader, Dataset, TensorDataset


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def pictures(n=192, side=8):
    """Pictures of two classes whose brightness differs."""
    y = integers(2, n)
    x = normal(n, 1, side, side) + (2 * y - 1)[:, None, None, None].astype(np.float32)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(8 * 8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x):
        x = self.flatten(x)
        return self.linear_relu_stack(x)


@program("002:1704-1794")
def quick_start(run):
    train_dataloader = DataLoader(pictures(), batch_size=64)
    test_dataloader = DataLoader(pictures(64), batch_size=64)
    model = settle(NeuralNetwork())
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    lines = []

    @run.compile
    def train_step(X, y):
        pred = model(X)
        loss = loss_fn(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def train_loop(dataloader):
        size = len(dataloader.dataset)
        for batch, (X, y) in enumerate(dataloader):
            loss = train_step(X, y)
            if batch % 2 == 0:
                loss, current = loss.item(), batch * len(X)
                lines.append(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]"[:12])

    def test_loop(dataloader):
        size, num_batches = len(dataloader.dataset), len(dataloader)
        test_loss, correct = 0, 0
        with torch.no_grad():
            for X, y in dataloader:
                pred = model(X)
                test_loss += loss_fn(pred, y).item()
                correct += (pred.argmax(1) == y).type(torch.float).sum().item()
        return 100 * correct / size, test_loss / num_batches

    found = []
    for _ in range(5):
        train_loop(train_dataloader)
        found.append(test_loop(test_dataloader))
    assert found[-1][0] > 95 and found[-1][1] < found[0][1]
    return lines, found


class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.0)
        self.fc = nn.Linear(4 * 9, 2)

    def forward(self, x):
        x = nn.functional.max_pool2d(nn.functional.relu(self.bn(self.conv(x))), 2)
        return self.fc(self.drop(x.flatten(1)))


@program("002:3962-4005, 002:4456")
def classification(run):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = settle(TinyNet()).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_loader, test_loader = DataLoader(pictures(), batch_size=32), DataLoader(pictures(64), batch_size=32)

    def train_step(images, labels):
        outputs = model(images)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = run.compile(train_step)
    losses, total_step = [], len(train_loader)
    for epoch in range(2):
        for i, (images, labels) in enumerate(train_loader):
            loss = step(images.to(device), labels.to(device))
            if (i + 1) % 2 == 0:
                losses.append(f"Epoch: [{epoch + 1}/2], Step: [{i + 1}/{total_step}]")
        losses.append(loss.item())
    model.eval()
    forward = run.compile(model)
    correct = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        total = 0
        for images, labels in test_loader:
            outputs = forward(images)
            _, predicted = torch.max(outputs.data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum()
    assert 100 * correct.item() / total > 95
    return losses, model.bn.running_mean


class SinNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(100, 5)

    def forward(self, x):
        output = torch.nn.functional.tanh(x)
        output = self.fc(output)
        return output[0] + output[1] * x + output[2] * x**2 + output[3] * x**3 + output[4] * x**4


@program("002:3269-3344")
def fitting_sin(run):
    x = torch.linspace(0, 1, 100)
    y = torch.sin(2 * np.pi * x)
    net = settle(SinNet())
    criterion = nn.MSELoss()
    optimizer = optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    @run.compile
    def step():
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(200)]
    assert losses[-1] < losses[0]
    return losses[::20], net(torch.linspace(0, 1, 100)).detach()


class Readings(Dataset):
    def __init__(self, list_):
        self.list = np.asarray(list_)

    def __getitem__(self, index):
        return torch.from_numpy(self.list[index, :4]).float(), int(self.list[index, 4])

    def __len__(self):
        return len(self.list)


@program("002:636-714, 002:774-909, 002:895-896")
def four_part_program(run):
    parser = argparse.ArgumentParser(description="")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save_interval", type=int, default=4)
    args = parser.parse_args([])
    table = np.concatenate([normal(32, 4), integers(3, 32, 1)], axis=1)
    loader = DataLoader(Readings(table), batch_size=8, num_workers=0)
    device = torch.device("cpu")
    model = settle(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    model.train()

    @run.compile
    def step(data_input, label):
        loss = criterion(model(data_input), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(2):
        for ii, (data_input, label) in enumerate(loader):
            losses.append(step(data_input.to(device), label.to(device).long()))
            iters = i * len(loader) + ii
            if iters % args.save_interval == 0:
                torch.save(model.state_dict(), "model.pth")
    again = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    again.load_state_dict(torch.load("model.pth"))
    again.eval()
    return losses, again(tensor(2, 4)).detach()


class ParameterServer:
    """Holds the parameters; workers fetch copies and push gradients, one at a time."""

    def __init__(self, model, lr):
        self.model, self.optimizer = model, optim.SGD(model.parameters(), lr)
        self.lock, self.pushes = threading.Lock(), 0

    def fetch(self):
        with self.lock:
            return {name: value.clone() for name, value in self.model.state_dict().items()}

    def push(self, gradients):
        with self.lock:
            for p, gradient in zip(self.model.parameters(), gradients, strict=True):
                p.grad = gradient
            self.optimizer.step()
            self.pushes += 1


@program("002:62-63")
def parameter_server(run):
    server = ParameterServer(settle(nn.Linear(4, 1)), 0.05)
    replicas = [settle(nn.Linear(4, 1)) for _ in range(3)]
    shards = [(tensor(8, 4, seed=n), tensor(8, 1, seed=10 + n)) for n in range(3)]

    @run.compile
    def gradients_of(model, x, y):
        return torch.autograd.grad(((model(x) - y) ** 2).mean(), tuple(model.parameters()))

    for _ in range(4):
        # Rounds: every worker has the same parameters, and gradients are pushed in the order of workers.
        results = [None] * len(shards)

        def work(n, results=results):
            replicas[n].load_state_dict(server.fetch())
            results[n] = gradients_of(replicas[n], *shards[n])

        workers = [threading.Thread(target=work, args=(n,)) for n in range(len(shards))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for gradients in results:
            server.push(gradients)
    return server.pushes, server.fetch()


class Map(dict):
    """A configuration whose keys are attributes too, at every depth."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for key, value in self.items():
            if isinstance(value, dict):
                self[key] = Map(value)

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


@program("001:887-918")
def configuration_with_attributes(run):
    config = Map({"net": {"width": 6, "slope": 0.1}, "train": {"lr": 0.05, "steps": 3}})
    model = settle(nn.Sequential(nn.Linear(4, config.net.width), nn.LeakyReLU(config.net.slope)))
    x = tensor(8, 4)

    @run.compile
    def step():
        loss = (model(x) * config.train.scale).square().mean() + config.net.slope
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= config.train.lr * p.grad
        return loss.detach()

    losses = []
    for config.train.scale in (1.0, 1.0, 0.5):  # a change between calls is seen
        losses.extend(step() for _ in range(config.train.steps))
    assert not hasattr(config.net, "depth") and config["net"]["width"] == 6
    return losses, dict(config.train)
