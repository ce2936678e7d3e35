"""Many clients at once: the bits of single requests, and no lost answer when a worker process is killed."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.serve.conftest import Server
from tests.serve.test_server import body, post, rows


def answer(server: Server, seed: int) -> bytes:
    status, told = post(server, "/v2/models/graph/infer", body(rows(1 + seed % 3, seed)))
    assert status == 200, told
    return np.array(told["outputs"][0]["data"], np.float32).tobytes()


def test_answers_are_those_of_single_requests(server: Server) -> None:
    alone = [answer(server, seed) for seed in range(20)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: answer(server, seed), [*range(20)] * 5))
    assert together == alone * 5


def test_a_killed_worker_loses_no_request(server: Server) -> None:
    alone = [answer(server, seed) for seed in range(20)]
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(lambda seed: answer(server, seed), [*range(20)] * 5)
        for pid in server.processes()[1:]:  # the first one starts the others
            os.kill(pid, signal.SIGKILL)
        assert list(together) == alone * 5
