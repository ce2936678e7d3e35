"""The launcher: ``python -m tracecomp.distributed.run --nproc-per-node 2 train.py --epochs 3``.

It takes torchrun's options, sets torchrun's variables, and starts the processes through an installed ``mpiexec``, or
without MPI. It forwards lines as ``[rank] line``. When a process fails, all end, and the launcher exits with its
status.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from uuid import uuid4

from tracecomp.communication import logical
from tracecomp.distributed.launch_logs import RankLogs, streams
from tracecomp.distributed.launching import Plan, find_mpiexec, run

_UNUSED = (
    "--rdzv-backend", "--rdzv-id", "--rdzv-conf", "--monitor-interval", "--start-method", "--local-addr",
)  # fmt: skip
"""Options of torchrun without effect here."""


def parser() -> argparse.ArgumentParser:
    """The options; underscores are equivalent to hyphens, for older scripts."""
    found = argparse.ArgumentParser(
        prog="python -m tracecomp.distributed.run", description="Run a program in several processes."
    )

    def option(*names: str, **how: object) -> None:
        extra = [n.replace("-", "_").replace("__", "--", 1) for n in names if n.startswith("--") and "-" in n[2:]]
        found.add_argument(*names, *extra, **how)  # type: ignore[arg-type]

    option("--nproc-per-node", "-n", default="1",
           help="processes on this machine, 'cpu' for one per core, or MIN:MAX: as many as MAX at first, one fewer each"
                " time they start again, down to MIN")  # fmt: skip
    option("--nnodes", default="1", help="machines")
    option("--node-rank", type=int, default=0, help="number of this machine, from 0")
    option("--master-addr", default="127.0.0.1", help="address of the first machine")
    option("--master-port", type=int, default=0, help="a free port on it; needed with several machines")
    option("--rdzv-endpoint", default="", help="host:port, instead of the two options above")
    option("--standalone", action="store_true", help="one machine")
    option("--shards", type=int, default=None,
           help="logical shards of the global batch: the program computes what so many processes of PyTorch compute,"
                " with the same bits for any number of processes (TRACECOMP_SHARDS)")  # fmt: skip
    option("--max-restarts", type=int, default=0, help="number of restarts after a failure")
    option("--launcher", choices=("auto", "mpiexec", "local"), default="auto",
           help="mpiexec: through MPI; processes: over TCP; auto: MPI if it is installed")  # fmt: skip
    option("--role", default="default", help="ROLE_NAME in the processes")
    option("--log-dir", help="folder of the files of --redirects and --tee; a temporary one by default")
    option(
        "-r",
        "--redirects",
        default="0",
        help="streams that go to a file per rank: 1 stdout, 2 stderr, 3 both; or for some local ranks, as in 0:1,1:3",
    )
    option("-t", "--tee", default="0", help="streams that go to a file per rank and to the console, like --redirects")
    option("--local-ranks-filter", default="", help="the console shows these local ranks only, as in 0,1")
    option("-m", "--module", action="store_true", help="the program is a module, as in python -m")
    option("--no-python", action="store_true", help="the program is not a Python script: run it directly")
    option("--use-env", action="store_true", help=argparse.SUPPRESS)
    for name in _UNUSED:
        option(name, help=argparse.SUPPRESS)
    found.add_argument("program", help="script or module")
    found.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return found


def _processes(told: str) -> tuple[int, int]:
    """Least and most processes of ``--nproc-per-node``. SystemExit unless they are numbers."""
    if told in ("cpu", "auto"):
        told = str(len(os.sched_getaffinity(0)))
    least, _, most = told.partition(":")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise SystemExit(f"--nproc-per-node {told}: give a number, 'cpu', or MIN:MAX") from None


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The plan for the options. SystemExit with an explanation for impossible ones."""
    try:
        shards = logical.requested() if arguments.shards is None else arguments.shards
    except ValueError as error:
        raise SystemExit(str(error)) from None
    nodes = int(str(arguments.nnodes).split(":")[-1])
    least, each = _processes(arguments.nproc_per_node)
    if not 1 <= least <= each or nodes < 1 or not 0 <= arguments.node_rank < nodes:
        raise SystemExit(
            f"--nproc-per-node {arguments.nproc_per_node} --node-rank {arguments.node_rank} --nnodes {nodes}: "
            "expected 1 <= MIN <= MAX processes, and a node rank below the number of nodes"
        )
    if least < each and nodes > 1:
        raise SystemExit(
            "--nproc-per-node MIN:MAX works on one machine only: others would not know the number of new processes"
        )
    if shards is not None and shards < each * nodes:
        raise SystemExit(f"--shards {shards}: fewer than {each * nodes} processes. Use at most {shards} processes")
    host, _, port = arguments.rdzv_endpoint.partition(":")
    address, number = host or arguments.master_addr, int(port or arguments.master_port)
    if nodes > 1 and not number:
        raise SystemExit("several machines need --master-addr and --master-port, the same on all of them")
    # mpiexec starts the processes of one machine; for several ones it needs host names from the user.
    can = nodes == 1 and find_mpiexec() is not None and not arguments.no_python
    if arguments.launcher == "mpiexec" and not can:
        raise SystemExit("--launcher mpiexec needs one machine, a Python program, mpi4py and an MPI: "
                         "pip install 'tracecomp[mpi]'; on several machines call mpiexec or srun itself")  # fmt: skip
    return Plan(
        [*(["-m"] if arguments.module else []), arguments.program, *arguments.arguments],
        each, least, nodes, arguments.node_rank, address,
        number, arguments.rdzv_id or uuid4().hex[:8], arguments.max_restarts,
        can and arguments.launcher != "local", not arguments.no_python, arguments.role, shards,
    )  # fmt: skip


def logs_of(arguments: argparse.Namespace, run_id: str) -> RankLogs:
    """The files of output for the options. SystemExit with an explanation for impossible ones."""
    try:
        redirects, tee = streams(arguments.redirects), streams(arguments.tee)
        shown = frozenset(map(int, arguments.local_ranks_filter.split(","))) if arguments.local_ranks_filter else None
    except ValueError as error:
        raise SystemExit(f"--redirects, --tee or --local-ranks-filter: {error}") from None
    return RankLogs(arguments.log_dir, run_id, redirects, tee, shown)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program that the options name; its exit status."""
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        options = parser().parse_args(arguments)
        plan = plan_of(options)
        return run(plan, logs_of(options, plan.run_id))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
