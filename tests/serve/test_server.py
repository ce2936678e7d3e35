"""A server process, through HTTP as a client sees it."""

from __future__ import annotations

import http.client
import json
import os
import signal
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.serve.conftest import Server, network

Json = Any


def call(
    server: Server, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET" if body is None else "POST", path, body, headers or {})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def post(server: Server, path: str, body: Json) -> tuple[int, Json]:
    status, content = call(server, path, json.dumps(body).encode())
    return status, json.loads(content)


def rows(count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((count, 6), np.float32)


def body(x: np.ndarray[Any, Any]) -> Json:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [*x.shape], "data": x.tolist()}]}


def test_health_and_metadata(server: Server) -> None:
    assert call(server, "/v2/health/live")[0] == call(server, "/v2/health/ready")[0] == 200
    assert json.loads(call(server, "/v2")[1])["name"] == "tracecomp"
    assert json.loads(call(server, "/v2/models/graph")[1]) == {
        "name": "graph", "versions": ["1"], "platform": "tracecomp_graph",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 6]}],
        "outputs": [{"name": "output_0", "datatype": "FP32", "shape": [-1, 3]}],
    }  # fmt: skip
    assert call(server, "/v2/models/scaled/versions/3/ready")[0] == 200
    assert call(server, "/v2/models/scaled/versions/2/ready")[0] == 404
    assert json.loads(call(server, "/ping")[1]) == {"status": "Healthy"}


def test_answers_have_the_bits_of_the_model(server: Server) -> None:
    x = rows(5)
    status, answer = post(server, "/v2/models/graph/infer", {**body(x), "id": "7"})
    assert status == 200 and answer["id"] == "7" and answer["outputs"][0]["shape"] == [5, 3]
    expected = np.asarray(torch.compile(network())(torch.tensor(x)).detach())
    assert np.array(answer["outputs"][0]["data"], np.float32).tobytes() == expected.tobytes()


def test_the_newest_version_answers_unless_one_is_named(server: Server) -> None:
    for path, factor in (("scaled/infer", 3), ("scaled/versions/1/infer", 1)):
        status, answer = post(server, f"/v2/models/{path}", body(np.ones((1, 6), np.float32)))
        assert status == 200 and answer["outputs"][0]["data"] == [factor] * 6


def test_binary_tensors(server: Server) -> None:
    x = rows(2)
    given = {"name": "x", "datatype": "FP32", "shape": [2, 6], "parameters": {"binary_data_size": x.nbytes}}
    header = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    length = {"Inference-Header-Content-Length": str(len(header))}
    status, content = call(server, "/v2/models/scaled/infer", header + x.tobytes(), length)
    assert status == 200 and content.endswith((x * 3).tobytes())


def test_predictions_take_rows_with_and_without_their_axis(server: Server) -> None:
    x = rows(2)
    assert post(server, "/predictions/scaled/1", x.tolist()) == (200, x.tolist())
    assert post(server, "/predictions/scaled/1", x[0].tolist()) == (200, x[0].tolist())
    assert post(server, "/predictions/scaled/1", {"x": x.tolist()}) == (200, x.tolist())


@pytest.mark.parametrize(
    ("path", "told", "status"),
    [
        ("/v2/models/none/infer", {}, 404),
        ("/v2/models/graph/infer", {}, 400),
        ("/v2/models/graph/infer", [], 400),
        ("/v2/models/graph/infer", {"inputs": []}, 400),
        ("/v2/models/graph/infer", body(np.ones((1, 5))), 400),
        ("/v2/models/graph/infer", body(np.ones((9, 6))), 400),
        ("/v2/models/graph/infer", body(np.ones(6)), 400),
        ("/v2/models/graph/infer", {**body(np.ones((1, 6))), "outputs": [{"name": "none"}]}, 400),
        ("/v2/models/graph/infer", {**body(np.ones((1, 6))), "parameters": {"timeout": "soon"}}, 400),
        ("/predictions/graph", ["a"], 400),
        ("/predictions/graph", {"x": [1]}, 400),
        ("/predictions/graph", None, 400),
        ("/none", {}, 404),
    ],
)
def test_malformed_requests_get_a_reason(server: Server, path: str, told: Json, status: int) -> None:
    got, content = call(server, path, json.dumps(told).encode())
    assert got == status and b"Traceback" not in content and content


def test_bytes_that_are_not_json(server: Server) -> None:
    for content, headers in ((b"\xff{", {}), (b"{}", {"Inference-Header-Content-Length": "9"}), (b"", {})):
        assert call(server, "/v2/models/graph/infer", content, headers)[0] == 400


def test_killed_processes_come_back(server: Server) -> None:
    for pid in server.processes():
        os.kill(pid, signal.SIGKILL)
    x = np.ones((1, 6), np.float32)
    for version in ("1", "3"):  # the requests wait for the new processes
        assert post(server, f"/v2/models/scaled/versions/{version}/infer", body(x))[0] == 200
    assert post(server, "/v2/models/graph/infer", body(x))[0] == 200
