"""Trains from the last checkpoint on: ``python resumed.py FOLDER STEPS [RANK MILLISECONDS]``.

Process RANK kills itself after so much time in the loop. Rank 0 prints a digest of everything at the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import tracecomp as torch
from tests.distributed.shards import EACH, MODELS, SHARDS
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.distributed import checkpoint
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset


class Progress:
    """What is saved beside model and optimizer: steps done, and the default generator."""

    step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        torch.set_rng_state(state["random"])


def main(folder: Path, steps: int) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    make, data = MODELS["mlp"]
    dataset = TensorDataset(*data())
    model = DistributedDataParallel(make(), shards=SHARDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    sampler, progress = DistributedSampler(dataset, shards=SHARDS, shard_size=EACH), Progress()
    everything: dict[str, Any] = {
        "model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler, "progress": progress,
    }  # fmt: skip
    if (folder / "metadata.json").exists():
        checkpoint.load(dict(everything), checkpoint_id=folder)
    print("started", progress.step, flush=True)
    if len(sys.argv) > 3 and dist.get_rank() == int(sys.argv[3]):
        threading.Timer(int(sys.argv[4]) / 1000, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    while progress.step < steps:
        for x, y in DataLoader(dataset, batch_size=sampler.batch_size, sampler=sampler):
            x, y = model.shard(x, y)
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            sampler.given()
            progress.step += 1
            checkpoint.save(everything, checkpoint_id=folder)
            if progress.step == steps:
                break
        else:
            sampler.set_epoch(sampler.epoch + 1)
    found = hashlib.sha256(repr(scheduler.state_dict()).encode())
    for value in (*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())):
        found.update(value.numpy().tobytes())
    print("digest", found.hexdigest(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
