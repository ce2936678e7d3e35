"""Thousands of malformed requests and archives: each gets a reason, and the server keeps its memory."""

from __future__ import annotations

import http.client
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.serve.conftest import Server
from tests.serve.test_handlers import archive
from tests.serve.test_server import body
from tracecomp.base.errors import TracecompError
from tracecomp.serve.archive import unpack
from tracecomp.serve.grpc_messages import SERVICE, message

pytestmark = pytest.mark.slow
X = np.ones((2, 6), np.float32)
ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, 1e308, "", "x", "\ud800", "NaN", [], [[]], {}, {"x": []}, [1, [2]], [None],
    [2, 6],
]  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {}, {"Inference-Header-Content-Length": "7"}, {"Inference-Header-Content-Length": "-1"},
    {"Content-Encoding": "gzip"}, {"Content-Type": "text/plain"}, {"X-Request-Id": "\x7f"},
)  # fmt: skip
PATHS = ("/v2/models/graph/infer", "/v2/models/scaled/versions/3/infer", "/predictions/graph", "/v2/models/%00/infer",
         "/v2/models/graph/generate_stream", "/v2/models/scaled/versions/x/infer", "/v2//models",
         "/predictions/")  # fmt: skip


def changed(value: Any, draw: random.Random) -> Any:
    """``value`` with some members replaced, removed or added."""
    if draw.random() < 0.15:
        return draw.choice(ODD)
    if isinstance(value, dict):
        kept = {key: changed(inner, draw) for key, inner in value.items() if draw.random() < 0.95}
        return kept if draw.random() < 0.9 else {**kept, draw.choice(["data", "parameters", "x"]): draw.choice(ODD)}
    if isinstance(value, list) and len(value) < 5:
        return [changed(inner, draw) for inner in value] * draw.choice([1, 1, 1, 0, 2])
    return value


def damaged(data: bytes, draw: random.Random) -> bytes:
    """``data`` with some bytes replaced, removed or repeated."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(made) + 1)
        made[place : place + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
    return bytes(made[: draw.randint(0, len(made))] if draw.random() < 0.1 else made)


def nested(draw: random.Random) -> bytes:
    depth = draw.choice([10, 100_000])
    return b'{"inputs":' + b"[" * depth + b"]" * depth * draw.randint(0, 1)


def requests(count: int) -> list[tuple[str, bytes, dict[str, str]]]:
    draw = random.Random(0)
    valid = {**body(X), "id": "1", "outputs": [{"name": "output_0"}], "parameters": {"timeout": 10**9, "priority": 1}}
    makers: list[Callable[[], bytes]] = [
        lambda: json.dumps(changed(valid, draw)).encode(),
        lambda: damaged(json.dumps(valid).encode(), draw),
        lambda: json.dumps(changed(X.tolist(), draw)).encode(),
        lambda: draw.randbytes(draw.randint(0, 50)),
        lambda: nested(draw),
    ]
    weights = [8, 4, 2, 2, 0.05]
    return [
        (draw.choice(PATHS), draw.choices(makers, weights)[0](), draw.choices(HEADERS, [9, 1, 1, 1, 1, 1])[0])
        for _ in range(count)
    ]


def memory(server: Server) -> int:
    """Resident KB of the server and its workers."""
    pids = [server.process.pid, *server.processes()]
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(found[1]) for status in statuses if (found := re.search(r"VmRSS:\s+(\d+)", status)))


def send(server: Server, given: list[tuple[str, bytes, dict[str, str]]]) -> Counter[int]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    statuses: Counter[int] = Counter()
    for path, content, headers in given:
        connection.request("POST", path, content, headers)
        response = connection.getresponse()
        answer = response.read()
        statuses[response.status] += 1
        assert response.status == 200 or 400 <= response.status < 500, (path, content, headers, answer)
        assert response.status == 200 or (answer and b"Traceback" not in answer)
    connection.close()
    return statuses


def test_http(models: Path, tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        server = Server(models, log=log)
        given = requests(12_000)
        send(server, given[:4_000])
        before = memory(server)
        statuses = send(server, given[4_000:])
        assert memory(server) < before + 20_000
        assert server.stop() == 0
    assert statuses[400] > 4_000 and statuses[404] > 1_000
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_grpc(models: Path, tmp_path: Path) -> None:
    draw, codes = random.Random(0), grpc.StatusCode
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2, 6]}]
    contents = {"fp32_contents": X.ravel().tolist()}
    valid = [
        message("ModelInferRequest")(model_name="graph", inputs=inputs, raw_input_contents=[X.tobytes()]),
        message("ModelInferRequest")(model_name="graph", inputs=[{**inputs[0], "contents": contents}]),
    ]
    texts = [request.SerializeToString() for request in valid]
    found: Counter[Any] = Counter()
    with open(tmp_path / "log", "w") as log:
        server = Server(models, log=log)
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            for number in range(5_000):
                if number == 1_000:
                    before = memory(server)
                try:
                    call(damaged(draw.choice(texts), draw))
                    found[codes.OK] += 1
                except grpc.RpcError as error:
                    found[error.code()] += 1
                    assert error.code() in (codes.INVALID_ARGUMENT, codes.NOT_FOUND), error
        assert memory(server) < before + 20_000
        assert server.stop() == 0
    assert found[codes.INVALID_ARGUMENT] > 1_000
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_archives(tmp_path: Path) -> None:
    draw = random.Random(0)
    valid = archive(tmp_path / "a.mar", "main.py", {"main.py": "x = 1\n" * 20, "data": "y"}).read_bytes()
    refused = 0
    for number in range(3_000):
        (tmp_path / "b.mar").write_bytes(damaged(valid, draw))
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            unpack(tmp_path / "b.mar", folder)
        except TracecompError:
            refused += 1
    assert refused > 2_000
