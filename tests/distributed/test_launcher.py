"""``python -m tracecomp.distributed.run``, through MPI where it is installed, and without."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.distributed.gangs import ROOT
from tracecomp.distributed import launching
from tracecomp.distributed.launching import Deaths, find_mpiexec
from tracecomp.distributed.run import logs_of, parser, plan_of

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


def becomes_true(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether a condition comes true within a time in which a busy machine manages it, too."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def is_running(process: str, folder: Path) -> bool:
    """Whether a process still runs a program on ``folder``. Dead ones, and new ones of the same number, do not."""
    try:
        return bytes(folder) in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def gone(folder: Path) -> bool:
    """Whether no process of the program is left; a killed one may take a moment to end."""
    processes = [path.read_text() for path in folder.glob("pid*")]
    return becomes_true(lambda: not any(is_running(process, folder) for process in processes))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_processes_know_their_ranks_and_lines_have_them_in_front(way: str, tmp_path: Path) -> None:
    done = launch(way, "well", tmp_path)
    assert done.returncode == 0, done.stderr
    transport = {"local": "SocketTransport", "mpiexec": "MpiTransport"}[way]
    lines = sorted(line for line in done.stdout.splitlines() if line)
    assert lines == [f"[{rank}] {rank} {rank} 2 2 0 [2.0, 2.0] {transport}" for rank in (0, 1)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_process_ends_all_and_is_named(way: str, tmp_path: Path) -> None:
    done = launch(way, "kill", tmp_path)
    assert done.returncode == 128 + signal.SIGKILL
    assert "tracecomp: rank 1 was ended by SIGKILL" in done.stderr and gone(tmp_path)


def test_the_process_that_was_killed_first_is_known(tmp_path: Path) -> None:
    """``mpiexec`` kills the other processes at once; a process that ended well does not count."""
    processes = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(3)]
    for rank, process in enumerate(processes):
        (tmp_path / f"rank{rank}").write_text(str(process.pid))
    deaths = Deaths(str(tmp_path), 3)
    (tmp_path / "done0").touch()
    processes[0].communicate()
    processes[2].kill()
    becomes_true(lambda: deaths.first is not None)
    processes[1].kill()
    deaths.stop()
    for process in processes[1:]:
        process.communicate()
    assert deaths.first == "rank2"


@pytest.mark.parametrize("first", range(4))
def test_the_order_of_deaths_is_known_to_who_comes_late(first: int, tmp_path: Path) -> None:
    """Many processes die between two checks: the first of them is distinguished from the others."""
    processes = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(4)]
    for rank, process in enumerate(processes):
        (tmp_path / f"rank{rank}").write_text(str(process.pid))
    late = Late(str(tmp_path), 4)
    assert becomes_true(lambda: len(late._files) == 4)
    late.awake.clear()
    assert late.asleep.wait(60)
    for process in (*processes[first:], *processes[:first]):
        process.kill()
        process.communicate()
    late.awake.set()
    becomes_true(lambda: late.first is not None)
    late.stop()
    assert late.first == f"rank{first}"


class Late(Deaths):
    """Does not look while ``awake`` is not set, and says in ``asleep`` that it does not."""

    def __init__(self, notes: str, count: int) -> None:
        self.awake, self.asleep = threading.Event(), threading.Event()
        self.awake.set()
        super().__init__(notes, count)

    @property
    def _stopped(self) -> bool:
        if not self.awake.is_set():
            self.asleep.set()
        self.awake.wait()
        return self._has_stopped

    @_stopped.setter
    def _stopped(self, value: bool) -> None:
        self._has_stopped = value


STUCK = f"""#!{sys.executable}
import os, subprocess, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--version" in sys.argv:
    sys.exit(print("HYDRA"))
count, command = int(sys.argv[sys.argv.index("-n") + 1]), sys.argv[sys.argv.index("-n") + 2:]
started = [subprocess.Popen(command, env={{**os.environ, "PMI_RANK": str(k)}}, start_new_session=True)
           for k in range(count)]
while True:
    time.sleep(1)
"""
"""An ``mpiexec`` that ends no process, and does not end."""
ALONE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
if os.environ["RANK"] == "1":
    while len([*folder.glob("pid*")]) < 3:
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
time.sleep(1000)
"""


@pytest.mark.slow
def test_an_mpiexec_that_leaves_the_others_running_is_ended_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mpiexec, script = tmp_path / "mpiexec", tmp_path / "alone.py"
    mpiexec.write_text(STUCK)
    mpiexec.chmod(0o755)
    script.write_text(ALONE)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: str(mpiexec))
    monkeypatch.setattr(launching, "_GRACE", 1.0)  # no process has anything to say
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    options = parser().parse_args(["--launcher", "local", "-n", "3", str(script), str(tmp_path)])
    plan = replace(plan_of(options), by_mpi=True)
    assert launching.run(plan, logs_of(options, "test")) == 128 + signal.SIGKILL  # it never ends unless killed
    assert "rank 1 ended, and mpiexec did not end the others" in capfd.readouterr().err
    assert len([*tmp_path.glob("pid*")]) == 3
    assert gone(tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("what", "status"), [("exit", 3), ("raise", 1)])
def test_a_failure_has_its_status_and_its_rank(what: str, status: int, tmp_path: Path) -> None:
    done = launch("local", what, tmp_path)
    assert done.returncode == status and gone(tmp_path)
    assert (
        "rank 1 failed first: " + {"exit": "it ended with status 3", "raise": "ValueError: planted"}[what]
        in done.stderr
    )
    assert "[0] " in done.stderr and "rank 1 died of" in done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_program_is_started_again_after_a_failure(way: str, tmp_path: Path) -> None:
    done = launch(way, "kill", tmp_path, "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert "restarting (1 of 1)" in done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_fewer_processes_go_on_to_the_bits_of_the_undisturbed_run(way: str, tmp_path: Path) -> None:
    """Rank 1 of three kills itself after the third of six steps; two start again, one if that comes too soon."""
    run = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", way]
    train = [str(SCRIPT.with_name("resumed.py")), str(tmp_path / way), "6"]
    options = ["--nproc-per-node", "1:3", "--max-restarts", "2"]
    disturbed = ran([*run, *options, *train, "1", "3", "0"])
    assert disturbed.returncode == 0, disturbed.stderr
    assert "restarting (1 of 2), in 2 processes instead of 3" in disturbed.stderr
    shutil.rmtree(tmp_path / way)
    undisturbed = ran([*run, "--nproc-per-node", "1", *train])
    digests = [set(re.findall("digest .*", done.stdout)) for done in (disturbed, undisturbed)]
    assert len(digests[1]) == 1 and digests[0] == digests[1], disturbed.stdout


@pytest.mark.parametrize(("told", "error"), [("3:2", "expected 1 <="), ("0", "expected 1 <="), ("two", "give a num")])
def test_a_number_of_processes_that_cannot_be_is_refused(told: str, error: str) -> None:
    with pytest.raises(SystemExit, match=error):
        plan_of(parser().parse_args(["--nproc-per-node", told, "train.py"]))


@pytest.mark.sampled(4)
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
        # A shell starts background processes with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert becomes_true(lambda: len([*tmp_path.glob("ready*")]) == 2)
        running.send_signal(number)
        running.wait(timeout=60)
        assert gone(tmp_path)
        assert number == signal.SIGKILL or running.returncode == 128 + number
    finally:
        running.kill()
        running.wait()


@pytest.mark.slow
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


SPEAKS = """
import os, sys
print("out", os.environ["RANK"], os.environ["ROLE_NAME"])
print("err", os.environ["RANK"], file=sys.stderr)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "files", "console"),
    [
        (["--redirects", "3"], {"0/stdout", "0/stderr", "1/stdout", "1/stderr"}, set()),
        (["-r", "1", "-t", "0:2,1:1"], {"0/stdout", "0/stderr", "1/stdout"}, {"[0] err", "[1] out", "[1] err"}),
        (["--tee", "1", "--local-ranks-filter", "1"], {"0/stdout", "1/stdout"}, {"[1] out", "[1] err"}),
    ],
)
def test_output_goes_to_files_of_ranks(
    way: str, options: list[str], files: set[str], console: set[str], tmp_path: Path
) -> None:
    """Files contain lines as the program wrote them; those that a stream goes to are torchrun's."""
    (tmp_path / "speaks.py").write_text(SPEAKS)
    folder = tmp_path / "logs"
    done = ran(command(way, "--log-dir", str(folder), "--role", "mine", *options, str(tmp_path / "speaks.py")))
    assert done.returncode == 0, done.stderr
    (attempt,) = folder.glob("*/attempt_0")
    assert {str(f.relative_to(attempt).with_suffix("")) for f in attempt.glob("*/*.log")} == files
    for name in files:
        rank, stream = name.split("/")
        text = f"out {rank} mine\n" if stream == "stdout" else f"err {rank}\n"
        assert (attempt / f"{name}.log").read_text() == text
    assert {line[:7] for line in (done.stdout + done.stderr).splitlines() if line} == console


@pytest.mark.parametrize("options", [["--redirects", "4"], ["--tee", "0:1,"], ["--local-ranks-filter", "x"]])
def test_streams_that_cannot_be_are_refused(options: list[str]) -> None:
    with pytest.raises(SystemExit, match="--redirects, --tee or --local-ranks-filter"):
        logs_of(parser().parse_args([*options, "x.py"]), "id")


@pytest.mark.parametrize("quiet", [0, 1])
def test_a_rank_that_ends_well_before_it_joined_is_named(quiet: int, tmp_path: Path) -> None:
    """The others do not wait for it until the timeout."""
    script = tmp_path / "quiet.py"
    script.write_text(f"import os\nif os.environ['RANK'] != '{quiet}':\n"
                      "    import tracecomp.distributed as dist\n    dist.init_process_group()\n")  # fmt: skip
    done = ran(command("local", str(script)))
    assert done.returncode == 1
    assert f"rank {1 - quiet} failed first: DistNetworkError: rank {quiet} ended with status 0" in done.stderr
