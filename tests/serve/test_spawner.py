"""The process that forks workers. A killed server leaves no processes."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import numpy as np

from tests.serve.conftest import Server
from tests.serve.test_server import body, post

ONES = body(np.ones((1, 6), np.float32))


def test_workers_are_forks_of_one_process(server: Server) -> None:
    spawner, *workers = server.processes()
    assert len(workers) == 3
    for pid in workers:
        assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]) == spawner


def test_a_killed_server_leaves_no_process_and_no_port(models: Path) -> None:
    server = Server(models)
    post(server, "/v2/models/scaled/infer", ONES)
    processes = server.processes()
    assert len(processes) == 4
    for pid in processes[1:]:
        os.kill(pid, signal.SIGSTOP)  # such a worker reads no connection, as while it computes
    waiting = [os.pidfd_open(pid) for pid in processes]
    with server.process:
        server.process.kill()
    for descriptor in waiting:
        select.select([descriptor], [], [])  # until the process has ended
        os.close(descriptor)
    again = Server(models, "--port", str(server.port))  # the last of two options counts
    assert again.port == server.port
    assert post(again, "/v2/models/scaled/infer", ONES)[0] == 200
    assert again.stop() == 0
