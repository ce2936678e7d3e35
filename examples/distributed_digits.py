"""A convolutional network learns handwritten digits in any number of processes, to the same bits.

python -m tracecomp.distributed.run --nproc-per-node 2 examples/distributed_digits.py [--epochs 3]
mpiexec -n 3 python examples/distributed_digits.py
"""

from __future__ import annotations

import argparse
import hashlib
import os

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.demo import digits
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel
from tracecomp.utils.data import DataLoader, DistributedSampler

SHARDS, SHARD_SIZE = 4, 16  # global batches of 64


def network() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.GELU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.GELU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip
    return nn.SyncBatchNorm.convert_sync_batchnorm(net)


def train(epochs: int) -> tuple[float, str]:
    """Accuracy on held-out digits, and a digest of the weights."""
    torch.manual_seed(0)
    learn, held_out = digits()
    model = DistributedDataParallel(network(), shards=SHARDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler = DistributedSampler(learn, shards=SHARDS, shard_size=SHARD_SIZE, drop_last=True)
    loader = DataLoader(learn, sampler.batch_size, sampler=sampler)

    @torch.compile
    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x, y = model.shard(images, labels)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return model.mean(loss)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = step(images, labels)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        images, labels = held_out.tensors
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return accuracy, hashlib.sha256(weights).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    accuracy, digest = train(epochs)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes: {accuracy:.1%} of held-out digits, weights {digest}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
