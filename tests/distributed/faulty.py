"""Programs in which one process does something else than the others: ``python faulty.py FAULT``."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp.distributed import distributed_c10d


def main(fault: str) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=2 if fault == "late" else 300))
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
    if fault == "barrier":
        if odd:
            time.sleep(3)
        dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
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
            time.sleep(6)
        elif fault == "shape":
            x = torch.ones(5)
        elif fault == "dtype":
            x = x.double()
        elif fault == "order":
            dist.broadcast(x, 0)
        elif fault == "op":
            dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.all_reduce(x)
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
