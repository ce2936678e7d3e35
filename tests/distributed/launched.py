"""Programs that the launcher starts in its tests: ``launched.py WHAT FOLDER``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import tracecomp as torch
from tracecomp import distributed as dist


def main(what: str, folder: Path) -> None:
    dist.init_process_group()
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    (folder / f"pid{rank}").write_text(str(os.getpid()))
    x = torch.ones(2)
    dist.all_reduce(x)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    print(*(os.environ[name] for name in names), x.tolist(), type(dist.group.WORLD.messenger.transport).__name__)
    if what == "kill" and rank == 1 and attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit" and rank == 1:
        raise SystemExit(3)
    if what == "raise" and rank == 1:
        raise ValueError("planted")
    if what == "sleep":
        (folder / f"ready{rank}").touch()
        time.sleep(1000)
    dist.all_reduce(x)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
