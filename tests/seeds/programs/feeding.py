"""Datasets and loaders."""

import numpy as np

import tracecomp as torch
from tests.seeds.harness import integers, normal, program, settle
from tracecomp import nn
from tracecomp.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)  # fmt: skip


class Pairs(Dataset):
    def __init__(self, n=20):
        self.x, self.y = normal(n, 4), integers(3, n)

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]), int(self.y[index])

    def __len__(self):
        return len(self.x)


@program("002:454-506, 002:671-684, 002:500-515", compiles=False)
def loaders(run):
    data = Pairs(20)
    batches = list(DataLoader(data, batch_size=6))
    dropped = list(DataLoader(data, batch_size=6, shuffle=False, drop_last=True, pin_memory=False))
    epochs = DataLoader(data, batch_size=20, shuffle=True)
    one, two = next(iter(epochs)), next(iter(epochs))
    assert not torch.equal(one[0], two[0]) and torch.allclose(one[0].sum(0), two[0].sum(0), atol=1e-4)
    collated = list(DataLoader(data, batch_size=8, collate_fn=lambda items: [label for _, label in items]))
    return batches, len(batches), len(dropped), collated


@program("002:524-570", compiles=False)
def dicts_and_lists(run):
    people = {0: "Zhang", 1: "Li", 2: "Wang", 3: "Zhao"}
    found = [(i, value) for i, value in enumerate(DataLoader(people, batch_size=2))]
    data = list(range(100))
    items = list(DataLoader(dataset=data, batch_size=6, shuffle=False))
    nested = [{"a": np.ones(2), "b": (1, 2.5)}, {"a": np.zeros(2), "b": (3, 4.5)}]
    return found, items, list(DataLoader(nested, batch_size=2))


class Counting(IterableDataset):
    def __iter__(self):
        self.n = 1
        return self

    def __next__(self):
        x = self.n
        self.n += 1
        if x >= 100:
            raise StopIteration
        return x


@program("002:574-604", compiles=False)
def iterables(run):
    return list(DataLoader(Counting(), batch_size=5))


@program("002:439, 002:468", compiles=False)
def samplers(run):
    data = list(range(10))
    batches = list(BatchSampler(SequentialSampler(data), batch_size=4, drop_last=False))
    order = list(RandomSampler(data))
    weighted = list(WeightedRandomSampler([0.0, 1.0, 0.0], 5, replacement=True))
    assert sorted(order) == data and weighted == [1] * 5
    odd = DataLoader(data, sampler=range(1, 10, 2), batch_size=2)
    whole = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 5, False))
    return batches, list(odd), list(whole)


@program("002:438, 002:457", compiles=False)
def splits(run):
    data = TensorDataset(torch.arange(20).float(), torch.arange(20))
    train, test = random_split(data, [15, 5], generator=torch.Generator().manual_seed(1))
    assert sorted([int(y) for _, y in train] + [int(y) for _, y in test]) == list(range(20))
    return [tuple(t.tolist() for t in Subset(data, [1, 3])[i]) for i in range(2)], len(train), len(test)


def announce(worker):
    np.random.seed(worker)


@program("002:467, 002:499, 002:4452", compiles=False)
def workers(run):
    data = Pairs(12)
    loader = DataLoader(data, batch_size=4, num_workers=2, worker_init_fn=announce)
    return list(loader), list(DataLoader(data, batch_size=4))


@program("002:3795-3842", compiles=False)
def mean_and_deviation(run):
    images = [(np.random.default_rng(n).integers(0, 256, (5, 4, 3)).astype(np.uint8), 0) for n in range(6)]

    def compute_mean_and_std(dataset):
        channels = np.zeros(3)
        for img, _ in dataset:
            channels += np.mean(np.asarray(img), axis=(0, 1))
        mean = channels / len(dataset)
        diff, n = np.zeros(3), 0
        for img, _ in dataset:
            diff += np.sum(np.power(np.asarray(img) - mean, 2), axis=(0, 1))
            n += np.prod(img[:, :, 0].shape)
        return mean / 255.0, np.sqrt(diff / n) / 255.0

    mean, std = compute_mean_and_std(images)
    stacked = torch.stack([torch.from_numpy(img) for img, _ in images]).double() / 255
    assert torch.allclose(stacked.mean((0, 1, 2)), torch.from_numpy(mean))
    assert torch.allclose(stacked.std((0, 1, 2), unbiased=False), torch.from_numpy(std))
    return mean, std


@program("002:671-714, 002:4124")
def feeding_a_compiled_step(run):
    model = settle(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @run.compile
    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step(x, y) for _ in range(3) for x, y in DataLoader(Pairs(22), batch_size=6)]
