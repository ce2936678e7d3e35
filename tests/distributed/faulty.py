"""Programs in which one process does something else than the others: ``python faulty.py FAULT``."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp.distributed import distributed_c10d


def wait_for_the_end_of_rank_0(store: dist.Store) -> None:
    """It serves the store, and ends when it has given up."""
    with suppress(dist.DistError):
        store.wait(["never set"])


def barrier(store: dist.Store) -> None:
    """Rank 1 does not come; rank 0 begins when all others have said that they are there."""
    world = dist.group.WORLD
    send = world.send
    if dist.get_rank() == 1:
        wait_for_the_end_of_rank_0(store)
    elif dist.get_rank() == 0:
        store.wait([f"in the barrier {rank}" for rank in range(2, dist.get_world_size())])
    else:

        def telling(*message: Any) -> None:
            send(*message)
            store.set(f"in the barrier {dist.get_rank()}", "")

        vars(world)["send"] = telling
    dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)


def main(fault: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    odd, x = dist.get_rank() == 1, torch.ones(4)
    dist.all_reduce(x)
    print("started", flush=True)
    store = distributed_c10d._get_default_store()
    store.set(f"started{dist.get_rank()}", "")
    ranks = range(dist.get_world_size())
    store.wait([f"started{rank}" for rank in ranks])  # for all, none still in the first sum
    store.set(f"seen{dist.get_rank()}", "")
    if dist.get_rank() == 0:  # it serves the store: none may still ask for something when it ends
        store.wait([f"seen{rank}" for rank in ranks])
    where = dist.new_group(timeout=timedelta(seconds=1)) if fault == "late" else None
    if fault == "barrier":
        barrier(store)
    elif fault == "group":
        dist.new_group([0, 1] if odd else [0, 2])
    elif odd:
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "raises":
            raise ValueError("planted")
        elif fault == "leaves":
            return
        elif fault == "late":
            wait_for_the_end_of_rank_0(store)
        elif fault == "shape":
            x = torch.ones(5)
        elif fault == "dtype":
            x = x.double()
        elif fault == "order":
            dist.broadcast(x, 0)
        elif fault == "op":
            dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.all_reduce(x, group=where)
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
