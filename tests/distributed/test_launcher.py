"""``python -m tracecomp.distributed.run``, through MPI where it is installed, and without."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.distributed.gangs import ROOT
from tracecomp.distributed.launching import find_mpiexec
from tracecomp.distributed.run import parser, plan_of

pytestmark = pytest.mark.slow  # measures memory or time: by chance red beside other work

SCRIPT = Path(__file__).with_name("launched.py")
NEEDS_MPI = pytest.mark.skipif(find_mpiexec() is None, reason="needs mpi4py and an mpiexec")
WAYS = ["local", pytest.param("mpiexec", marks=NEEDS_MPI)]


def command(way: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", way, "--nproc-per-node", "2", *options]


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "MPI_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


def ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment())


def launch(way: str, what: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return ran([*command(way, *options), str(SCRIPT), what, str(folder)])


def gone(folder: Path) -> bool:
    """Whether no process of the program is left."""
    return all(not Path(f"/proc/{path.read_text()}").exists() for path in folder.glob("pid*"))


@pytest.mark.parametrize("way", WAYS)
def test_processes_know_their_ranks_and_lines_have_them_in_front(way: str, tmp_path: Path) -> None:
    done = launch(way, "well", tmp_path)
    assert done.returncode == 0, done.stderr
    transport = {"local": "SocketTransport", "mpiexec": "MpiTransport"}[way]
    lines = sorted(line for line in done.stdout.splitlines() if line)
    assert lines == [f"[{rank}] {rank} {rank} 2 2 0 [2.0, 2.0] {transport}" for rank in (0, 1)]


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_process_ends_all_and_is_named(way: str, tmp_path: Path) -> None:
    done = launch(way, "kill", tmp_path)
    assert done.returncode == 128 + signal.SIGKILL
    assert "tracecomp: rank 1 was ended by SIGKILL" in done.stderr and gone(tmp_path)


@pytest.mark.parametrize(("what", "status"), [("exit", 3), ("raise", 1)])
def test_a_failure_has_its_status_and_its_rank(what: str, status: int, tmp_path: Path) -> None:
    done = launch("local", what, tmp_path)
    assert done.returncode == status and gone(tmp_path)
    assert (
        "rank 1 failed first: " + {"exit": "it ended with status 3", "raise": "ValueError: planted"}[what]
        in done.stderr
    )
    assert "[0] " in done.stderr and "rank 1 died of" in done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_program_is_started_again_after_a_failure(way: str, tmp_path: Path) -> None:
    done = launch(way, "kill", tmp_path, "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert "starting again (1 of 1)" in done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_fewer_processes_go_on_to_the_bits_of_the_undisturbed_run(way: str, tmp_path: Path) -> None:
    """Rank 1 of three kills itself after the third of six steps; two start again, one if that comes too soon."""
    run = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", way]
    train = [str(SCRIPT.with_name("resumed.py")), str(tmp_path / way), "6"]
    options = ["--nproc-per-node", "1:3", "--max-restarts", "2"]
    disturbed = ran([*run, *options, *train, "1", "3", "0"])
    assert disturbed.returncode == 0, disturbed.stderr
    assert "starting again (1 of 2), in 2 processes instead of 3" in disturbed.stderr
    shutil.rmtree(tmp_path / way)
    undisturbed = ran([*run, "--nproc-per-node", "1", *train])
    digests = [set(re.findall("digest .*", done.stdout)) for done in (disturbed, undisturbed)]
    assert len(digests[1]) == 1 and digests[0] == digests[1], disturbed.stdout


@pytest.mark.parametrize(("told", "error"), [("3:2", "not possible"), ("0", "not possible"), ("two", "give a number")])
def test_a_number_of_processes_that_cannot_be_is_refused(told: str, error: str) -> None:
    with pytest.raises(SystemExit, match=error):
        plan_of(parser().parse_args(["--nproc-per-node", told, "train.py"]))


@pytest.mark.parametrize(
    ("way", "number"),
    [
        ("local", signal.SIGINT),
        ("local", signal.SIGTERM),
        ("local", signal.SIGKILL),
        pytest.param("mpiexec", signal.SIGINT, marks=NEEDS_MPI),
    ],
)
def test_an_end_of_the_launcher_leaves_no_process(way: str, number: signal.Signals, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*command(way), str(SCRIPT), "sleep", str(tmp_path)], env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while len(list(tmp_path.glob("ready*"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(number)
        running.wait(timeout=20)
        end = time.monotonic() + 10
        while not gone(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        assert gone(tmp_path)
        assert number == signal.SIGKILL or running.returncode == 128 + number
    finally:
        running.kill()
        running.wait()


def test_a_module_is_run_and_bad_options_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*command("local"), "-m", "tests.distributed.launched", "well", str(tmp_path)], capture_output=True, text=True,
        timeout=100, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0 and "[1] 1 1 2 2 0" in done.stdout, done.stderr
    bad = subprocess.run(
        [*command("local", "--nnodes", "2"), str(SCRIPT)], capture_output=True, text=True, env=environment()
    )
    assert bad.returncode == 1 and "--master-addr and --master-port" in bad.stderr
