"""A model sharded by ``fully_shard`` and one of ``DistributedDataParallel``: ``python sharded.py FOLDER WHAT``.

``train`` compares bits after some steps and writes a checkpoint. ``resume`` reads it, whatever has written it, and
continues. Rank 0 writes digests to ``FOLDER/WHAT-SIZE.txt``.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import tracecomp as torch
from tests.distributed.shards import EACH, MODELS, SHARDS, WORDS
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.distributed import checkpoint
from tracecomp.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tracecomp.distributed.fsdp.wrap import size_based_auto_wrap_policy
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel


def made(kind: str, sharded: bool) -> Any:
    torch.manual_seed(7)
    model = MODELS[kind][0]()
    if not sharded:
        return DistributedDataParallel(model, shards=SHARDS)
    if kind == "mlp":  # by the wrapper
        policy = partial(size_based_auto_wrap_policy, min_num_params=1)
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, shards=SHARDS)
    for child in model.children():
        if sum(1 for _ in child.parameters()):
            fully_shard(child, shards=SHARDS)
    return fully_shard(model, shards=SHARDS)


def train(kind: str, model: Any, optimizer: Any, steps: range) -> None:
    """Steps of AdamW with clipping on batches that a step's number makes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = slice(rank * SHARDS // size * EACH, (rank + 1) * SHARDS // size * EACH)
    for step in steps:
        torch.manual_seed(step)
        xs, ys = MODELS[kind][1]()
        x, y = model.shard(xs[: SHARDS * EACH][rows], ys[: SHARDS * EACH][rows])
        out = model(x)
        loss = F.cross_entropy(out.reshape(-1, WORDS), y.reshape(-1)) if kind == "gpt" else F.cross_entropy(out, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()


def digest(model: Any, optimizer: Any) -> str:
    """Return the digest of all parameters, buffers and moments, each as a whole tensor."""
    options = checkpoint.state_dict.StateDictOptions(full_state_dict=True)
    weights, state = checkpoint.state_dict.get_state_dict(model, optimizer, options=options)
    found = hashlib.sha256()
    for value in (*weights.values(), *(v for s in state["state"].values() for v in s.values())):
        found.update(value.numpy().tobytes())
    return found.hexdigest()


def main(folder: Path, what: str) -> None:
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    lines = []
    for kind in MODELS:
        model = made(kind, True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        state = {"model": model, "optimizer": optimizer}
        if what == "resume":
            checkpoint.load(state, checkpoint_id=folder / kind)
            train(kind, model, optimizer, range(3, 5))
        else:
            train(kind, model, optimizer, range(3))
            checkpoint.save(state, checkpoint_id=folder / kind)
            train(kind, model, optimizer, range(3, 5))
            plain = made(kind, False)
            other = torch.optim.AdamW(plain.parameters(), lr=1e-2)
            train(kind, plain, other, range(5))
            assert digest(plain, other) == digest(model, optimizer), kind
        lines.append(f"{kind} {digest(model, optimizer)}")
    if dist.get_rank() == 0:
        (folder / f"{what}-{dist.get_world_size()}.txt").write_text("\n".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
