"""Trains from the last checkpoint on: ``python resumed.py FOLDER STEPS [RANK STEP MILLISECONDS]``.

Process RANK kills itself MILLISECONDS after STEP steps, never after the last step. For STEP -1 it counts from the start
of making the group, which all processes then do at once. MILLISECONDS 0 means at once, and -1 the moment at which it
would write its part of the next checkpoint. Rank 0 prints a digest of everything at the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import tracecomp as torch
from tests.distributed.shards import EACH, MODELS, SHARDS
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.distributed import checkpoint
from tracecomp.distributed.checkpoint import files
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset


class Progress:
    """State saved next to model and optimizer: steps done, and the default generator."""

    step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        torch.set_rng_state(state["random"])


class Death:
    """``kill -9`` of this process, at once, while it saves or by a timer, if it is the one to die."""

    def __init__(self, folder: Path, rank: int, step: int, milliseconds: float) -> None:
        self.step = step if rank == int(os.environ["RANK"]) else None
        self.folder, self.milliseconds = folder, milliseconds
        self.timer = threading.Timer(milliseconds / 1000, self.die)

    def die(self, *_: object) -> None:
        """Note when, and end at once."""
        (self.folder / "died").write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)

    def after(self, step: int) -> None:
        """Die, or prepare to, when this is the step."""
        if step != self.step:
            return
        if self.milliseconds > 0:
            self.timer.start()
        elif self.milliseconds == 0:
            self.die()
        else:
            vars(files)["write_file"] = self.die


def all_ready(folder: Path) -> None:
    """Wait until all processes are here."""
    (folder / f"ready{os.environ['RANK']}").touch()
    while len([*folder.glob("ready*")]) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.001)


def main(folder: Path, steps: int, death: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
    dying = Death(folder, *map(int, death or ("-1", "0", "0")))
    if death and death[1] == "-1":
        all_ready(folder)
    dying.after(-1)
    # A process that dies before it comes is found by the limit alone; how busy the machine is decides nothing else.
    limit = 8 if death and death[1] == "-1" else 100
    dist.init_process_group("gloo", timeout=timedelta(seconds=limit))
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
    first = progress.step
    while progress.step < steps:
        for x, y in DataLoader(dataset, batch_size=sampler.batch_size, sampler=sampler):
            dying.after(progress.step - first)
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
    dying.timer.cancel()
    found = hashlib.sha256(repr(scheduler.state_dict()).encode())
    for value in (*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())):
        found.update(value.numpy().tobytes())
    print("digest", found.hexdigest(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
