"""A process that dies, leaves, comes late or disagrees is an error in all others, which names it and the operation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.distributed.gangs import Ended, gang
from tracecomp import distributed as dist

SCRIPT = str(Path(__file__).with_name("faulty.py"))
REDUCTION = "all_reduce(SUM, float32[4])"


def faulty(fault: str, size: int = 3) -> Sequence[Ended]:
    """Three processes of which rank 1 is at fault; all end, and not because an operation has given up after 300 s."""
    ended = gang(size, SCRIPT, fault, seconds=100)  # raises an error if a process does not end
    assert all("started" in e.text for e in ended)
    assert all(e.status for rank, e in enumerate(ended) if rank != 1)
    return [ended[0], ended[2]]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("killed", "rank 1 died"),
        ("raises", "rank 1 died of ValueError: planted"),
        ("leaves", "rank 1 has ended"),
        ("late", "rank 1"),
    ],
)
def test_an_absent_process_is_named_with_the_operation_that_waited(fault: str, what: str) -> None:
    for other in faulty(fault):
        assert "DistBackendError" in other.text and what in other.text and REDUCTION in other.text, other.text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fault", "theirs"),
    [
        ("shape", "all_reduce(SUM, float32[5])"),
        ("dtype", "all_reduce(SUM, float64[4])"),
        ("order", "broadcast(from 0, float32[4])"),
        ("op", "all_reduce(MAX, float32[4])"),
    ],
)
def test_processes_that_disagree_are_told_who_called_what(fault: str, theirs: str) -> None:
    for other in faulty(fault):
        assert "ranks disagree" in other.text, other.text
        assert f"rank 1 called {theirs}" in other.text and REDUCTION in other.text, other.text


def test_processes_that_make_different_groups_are_told() -> None:
    for other in faulty("group"):
        assert "rank 1 called new_group([0, 1])" in other.text and "called new_group([0, 2])" in other.text, other.text


def test_a_monitored_barrier_names_who_did_not_come() -> None:
    first, _ = faulty("barrier")
    assert "Rank 1 failed to pass monitoredBarrier in 1000 ms" in first.text


def test_a_result_is_never_made_of_what_belongs_to_another_call(tmp_path: Path) -> None:
    """Rank 1 sends as many bytes as the others expect, of a different dtype; no process may sum them."""
    script = tmp_path / "mixed.py"
    script.write_text(
        "import tracecomp as torch, tracecomp.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(4, dtype=torch.int32 if dist.get_rank() == 1 else torch.float32)\n"
        "dist.all_reduce(x)\n"
        "print('the sum:', x)\n"
    )
    for ended in gang(4, str(script), seconds=60):
        assert ended.status and "ranks disagree" in ended.text and "the sum:" not in ended.text, ended.text


def test_a_process_that_ends_answers_first_who_waits_for_keys_that_are_there() -> None:
    """A process sets the keys of a store as its last action; eight processes that wait for them get an answer.

    The threads that answer them get no turn before the process begins to end.
    """
    program = (
        "import atexit, sys, threading, time, tracecomp.distributed as dist\n"
        "from tracecomp.communication import tcp_store\n"
        "ending, write = threading.Event(), tcp_store._write\n"
        "def late(link, fields):\n"
        "    fields == [b'', b'1'] and ending.wait()\n"
        "    write(link, fields)\n"
        "tcp_store._write = late\n"
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True)\n"
        "atexit.register(ending.set)\n"
        "print(store.port, flush=True)\n"
        "while len(store._server.asked) < 8: time.sleep(0.01)\n"  # until all wait
        "sys.setswitchinterval(10)\n"  # other threads never get a turn
        "store.set('done', b'1')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=PIPE, text=True) as serving:
        assert serving.stdout
        port = int(serving.stdout.readline())
        stores = [dist.TCPStore("127.0.0.1", port) for _ in range(8)]
        with ThreadPoolExecutor(8) as threads:
            waiting = [threads.submit(store.get, "done") for store in stores]
            assert [w.result() for w in waiting] == [b"1"] * 8
        for store in stores:
            store.close()


def own_sockets() -> set[str]:
    """The inodes of this process's open files: another program may listen on the same port of another address."""
    numbers = {path.name for path in Path("/proc/self/fd").iterdir()}
    inodes = set()
    for number in numbers:
        with suppress(OSError):
            inodes.add(str(os.stat(int(number)).st_ino))
    return inodes


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_store_of_this_machine_listens_on_the_loopback_only(host: str) -> None:
    """The kernel's table of listening sockets, not what the store says, tells who can reach it."""
    store = dist.TCPStore(host, 0, is_master=True)
    try:
        table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        table += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
        port, listening, own = f"{store.port:04X}", "0A", own_sockets()
        loopback = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
        found = [row[1] for row in table if row[1].endswith(":" + port) and row[3] == listening and row[9] in own]
        assert found == [f"{loopback}:{port}"]
    finally:
        store.close()
