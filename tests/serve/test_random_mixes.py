"""Two thousand random mixes of requests: each answer has the bits of the same request alone."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

import pytest

from tests.serve.conftest import Server
from tests.serve.test_same_bits import MODELS, MOST, exported_file, onnx_file, program_file, rows
from tests.serve.test_server import call
from tracecomp.serve.tensors import of_array

pytestmark = pytest.mark.slow
MIXES = 2000
CLIENTS = 12
FILES = {"dense": program_file, "winograd": program_file, "attention": exported_file, "norm": onnx_file}
Request = tuple[str, bytes, dict[str, str]]
Connections = SimpleQueue[http.client.HTTPConnection]


def request(name: str, input_name: str, seed: int) -> Request:
    """Path, body and headers of a request with binary tensors."""
    tensor = of_array(input_name, rows(name, 1 + seed % 3, seed))
    told = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape,
            "parameters": {"binary_data_size": len(tensor.data)}}  # fmt: skip
    head = json.dumps({"inputs": [told], "parameters": {"binary_data_output": True}}).encode()
    body = head + bytes(tensor.data)
    return f"/v2/models/{name}/infer", body, {"Inference-Header-Content-Length": str(len(head))}


def answer(connections: Connections, asked: Request, delay: float = 0.0) -> bytes:
    """The bytes of the outputs, over a connection that is free."""
    time.sleep(delay)
    connection = connections.get()
    connection.request("POST", *asked)
    response = connection.getresponse()
    content: bytes = response.read()
    connections.put(connection)
    assert response.status == 200, content
    return content[int(response.headers["Inference-Header-Content-Length"]) :]


def served(save: Callable[[str, Path], Path], name: str, folder: Path) -> None:
    made = save(name, folder)
    made.rename(made.with_name(f"{name}{made.suffix}"))
    (folder / f"{name}.json").write_text(json.dumps({"max_batch_size": MOST, "threads": 1, "max_delay_ms": 1}))


def test_answers_of_random_mixes_are_those_of_single_requests(tmp_path: Path) -> None:
    assert FILES.keys() <= MODELS.keys()
    for name, save in FILES.items():
        served(save, name, tmp_path)
    server, random = Server(tmp_path), Random(0)
    names: dict[str, Any] = {n: json.loads(call(server, f"/v2/models/{n}")[1])["inputs"][0]["name"] for n in FILES}
    asked = [request(name, names[name], seed) for name in FILES for seed in range(30)]
    connections: Connections = SimpleQueue()
    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(CLIENTS):
            made = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            connections.put(stack.enter_context(closing(made)))
        alone = [answer(connections, one) for one in asked]
        for _ in range(MIXES):
            mix: Sequence[int] = random.choices(range(len(asked)), k=random.randint(2, CLIENTS))
            delays = [random.choice((0.0, 0.0, random.random() / 500)) for _ in mix]
            together = pool.map(lambda k, delay: answer(connections, asked[k], delay), mix, delays)
            assert [*together] == [alone[k] for k in mix]
    assert requests_per_batch(server) > 1.3
    assert server.stop() == 0


def requests_per_batch(server: Server) -> float:
    """The mean number, which shows that requests were batched."""
    told = call(server, "/metrics")[1].decode()
    found = {key: sum(float(line.split()[1]) for line in told.splitlines() if line.startswith(key))
             for key in ("tracecomp_batch_rows_count", "tracecomp_queue_seconds_count")}  # fmt: skip
    return found["tracecomp_queue_seconds_count"] / found["tracecomp_batch_rows_count"]
