"""Weights, checkpoints, whole models."""

import os
import shutil
from pathlib import Path

import tracecomp as torch
from tests.seeds.harness import normal, program, settle
from tracecomp import nn, optim, utils


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 5)
        self.fc2 = nn.Linear(5, 1)

    def forward(self, x):
        return self.fc2(self.fc1(x))


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


def train(run, model, optimizer, steps):
    x = tensor(8, 10)

    @run.compile
    def step():
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step() for _ in range(steps)]


@program("002:1163-1185, 002:1646-1665, 002:4308-4324", compiles=False)
def weights(run):
    model = settle(Net())
    outputs = []
    for path in ("model.bin", "model.pt", "model.pth"):
        torch.save(model.state_dict(), path)
        again = Net()
        again.load_state_dict(torch.load(path, map_location=torch.device("cpu")))
        again.eval()
        outputs.append(again(tensor(2, 10)).detach())
    assert torch.equal(outputs[0], model(tensor(2, 10)))
    return outputs


@program("002:1120-1154, 002:4326-4364")
def checkpoints(run):
    model = settle(Net())
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    train(run, model, optimizer, 3)
    checkpoint = {
        "epoch": 10, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
        "loss": torch.tensor(0.5), "best_acc": 0.75,
    }  # fmt: skip
    os.makedirs("model", exist_ok=True)
    path, best = os.path.join("model", "checkpoint.pth.tar"), os.path.join("model", "best_checkpoint.pth.tar")
    torch.save(checkpoint, path)
    shutil.copy(path, best)
    resumed = Net()
    other = optim.SGD(resumed.parameters(), lr=0.5, momentum=0.1)
    loaded = torch.load(best)
    resumed.load_state_dict(loaded["model_state_dict"])
    other.load_state_dict(loaded["optimizer_state_dict"])
    one, two = train(run, model, optimizer, 3), train(run, resumed, other, 3)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    return loaded["epoch"], loaded["loss"], loaded["best_acc"], one


@program("002:1233-1247, 002:1672-1680, 002:4291-4300", compiles=False)
def whole_models(run):
    model = settle(nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.BatchNorm1d(5)))
    torch.save(model, "entire_model.pt")
    again = torch.load("entire_model.pt", weights_only=False)
    again.eval()
    model.eval()
    assert torch.equal(again(tensor(3, 10)), model(tensor(3, 10)))
    try:
        torch.load("entire_model.pt")
    except Exception as error:
        return type(error).__name__, again(tensor(3, 10)).detach()
    raise AssertionError("whole models need weights_only=False")


@program("002:703, 002:853, 002:3766-3791", compiles=False)
def strict_and_partial_loading(run):
    saved = settle(nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2))).state_dict()
    model = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2), nn.Linear(2, 2))
    try:
        model.load_state_dict(saved)
    except RuntimeError as error:
        message = str(error)
    found = model.load_state_dict(saved, strict=False)
    new = model.state_dict()
    common = {k: v for k, v in saved.items() if k in new}
    new.update(common)
    keys = model.load_state_dict(new)
    return message, found.missing_keys, found.unexpected_keys, str(keys), model[0].weight.detach()


@program("002:895-896, 002:3768, 002:1683-1697", compiles=False)
def prefixes_and_best_models(run):
    wrapped = nn.DataParallel(settle(Net()))
    names = list(wrapped.state_dict())
    best_loss, best = float("inf"), []
    for epoch, val_loss in enumerate((0.5, 0.3, 0.4)):
        if val_loss < best_loss:
            best_loss = val_loss
            torch.save(wrapped.state_dict(), "best_model.pth")
            best.append(epoch)
    again = nn.DataParallel(Net())
    again.load_state_dict(torch.load("best_model.pth"))
    return names, best, again(tensor(2, 10)).detach()


@program("002:161-167, 002:209-233", compiles=False)
def from_data_to_a_served_file(run):
    """The way from a hub over data sets and training to a file for serving, each with torch's own part."""
    Path("zoo").mkdir(exist_ok=True)
    Path("zoo/hubconf.py").write_text(
        f"from {torch.__name__} import nn\n\n\n"
        'def head(width):\n    "A small head."\n'
        "    return nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 1))\n"
    )
    model = settle(torch.hub.load("zoo", "head", source="local", width=10))
    data = utils.data.TensorDataset(tensor(12, 10), tensor(12, 1, seed=1))
    optimizer = optim.Adam(model.parameters(), 0.01)
    for x, y in utils.data.DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model.eval(), (tensor(4, 10),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, "model.pt2")
    served = torch.export.load("model.pt2").module()
    results = [served(tensor(n, 10, seed=n)).detach() for n in (4, 7)]
    assert torch.allclose(results[1], model(tensor(7, 10, seed=7)), atol=1e-6)
    return results
