"""A program written for PyTorch that saves a checkpoint after every step: ``plain_resumed.py FOLDER STEPS WAY``.

It knows neither shards nor tracecomp. WAY is ``file`` (rank 0 calls ``torch.save``) or ``folder`` (all ranks call
``torch.distributed.checkpoint``). Rank 0 prints every step and, at the end, a digest of everything.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import tracecomp as torch
import tracecomp.distributed as dist
import tracecomp.distributed.checkpoint as dcp
from tracecomp import nn
from tracecomp.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from tracecomp.nn.parallel import DistributedDataParallel as DDP
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 16


def network() -> Any:
    body = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*body, nn.Dropout(0.3), nn.Linear(36, 5))


class Run:
    """The model, what trains it, and its checkpoint."""

    def __init__(self, folder: Path, way: str) -> None:
        torch.manual_seed(0)
        self.model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(network()))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.5)
        self.way, self.place, self.step = way, folder / "checkpoint", 0

    def save(self) -> None:
        if self.way == "folder":
            model, optimizer = get_state_dict(self.model, self.optimizer)
            dcp.save({"model": model, "optimizer": optimizer, **self._others()}, checkpoint_id=self.place)
        elif dist.get_rank() == 0:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), **self._others()}
            torch.save(state, f"{self.place}.new")
            os.replace(f"{self.place}.new", self.place)

    def load(self) -> None:
        if self.way == "folder":
            if not (self.place / "metadata.json").exists():
                return
            model, optimizer = get_state_dict(self.model, self.optimizer)
            state = {"model": model, "optimizer": optimizer, **self._others()}
            dcp.load(state, checkpoint_id=self.place)
            set_state_dict(
                self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
            )
        else:
            if not self.place.exists():
                return
            state = torch.load(self.place)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["random"])
        self.step = state["step"]

    def _others(self) -> dict[str, Any]:
        return {"scheduler": self.scheduler.state_dict(), "random": torch.get_rng_state(), "step": self.step}

    def digest(self) -> str:
        found = hashlib.sha256(repr(self.scheduler.state_dict()).encode())
        states = [v for _, s in sorted(self.optimizer.state_dict()["state"].items()) for _, v in sorted(s.items())]
        for value in (*self.model.state_dict().values(), *states):
            found.update(value.numpy().tobytes())
        return found.hexdigest()


def main(folder: Path, steps: int, way: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(40, 1, 8, 8), torch.randint(0, 5, (40,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=GLOBAL_BATCH // dist.get_world_size(), sampler=sampler)
    run = Run(folder, way)
    run.load()
    while run.step < steps:
        epoch, done = divmod(run.step, len(loader))
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            if i < done or run.step == steps:
                continue
            run.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(run.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.5)
            run.optimizer.step()
            run.scheduler.step()
            run.step += 1
            run.save()
            if dist.get_rank() == 0:
                print(f"step {run.step} loss {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        print("digest", run.digest(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
