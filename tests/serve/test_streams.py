"""Handlers whose answers are streams: server-sent events, ModelStreamInfer, and clients that leave."""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import Server
from tests.serve.test_handlers import archive
from tests.serve.test_server import call

COUNT = """
def handle(data, context):
    return None if data is None else numbers(data[0]["body"])


def numbers(body):
    last = int(body)
    number = 0
    while number != last:
        if number == 3 and last < 0:
            raise KeyError("three")
        yield {"number": number}
        number += 1
"""
WORDS = """
def handle(data, context):
    return None if data is None else iter_words(data[0]["body"])


def iter_words(body):
    yield from str(body).split(" ")
"""


@pytest.fixture(scope="module")
def streaming(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("streams")
    archive(folder / "count.mar", "main", {"main.py": COUNT})
    archive(folder / "words.mar", "main", {"main.py": WORDS})
    (folder / "graph.tcp").write_bytes((models / "graph.tcp").read_bytes())
    server = Server(folder, "--allow-code")
    yield server
    assert server.stop() == 0


def events(server: Server, name: str, told: Any) -> list[str]:
    status, content = call(server, f"/v2/models/{name}/generate_stream", json.dumps(told).encode())
    assert status == 200 and content.endswith(b"\n\n")
    return content.decode().removesuffix("\n\n").split("\n\n")


def test_values_of_a_generator_are_events(streaming: Server) -> None:
    assert events(streaming, "count", 3) == [f'data: {{"number": {n}}}' for n in range(3)]
    assert events(streaming, "words", "one two\nthree") == ['data: "one"', 'data: "two\\nthree"']
    *values, error = events(streaming, "count", -1)
    assert len(values) == 3 and error.startswith("event: error\n") and "KeyError" in error
    assert call(streaming, "/v2/models/count/generate_stream", b'"x"')[0] == 500  # no first answer
    assert call(streaming, "/v2/models/count/generate_stream", b"{")[0] == 400
    assert call(streaming, "/v2/models/graph/generate_stream", b"1")[0] == 400
    assert call(streaming, "/v2/models/none/generate_stream", b"1")[0] == 404
    json_type = {"Content-Type": "application/json"}
    assert call(streaming, "/predictions/words", b'"one two"', json_type) == (200, b"onetwo")


def test_the_computation_ends_when_the_client_leaves(streaming: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", streaming.port)
    connection.request("POST", "/v2/models/count/generate_stream", b"1000000000000")
    response = connection.getresponse()
    assert response.readline() == b'data: {"number": 0}\n'
    response.close()
    connection.close()
    assert events(streaming, "count", 1) == ['data: {"number": 0}']  # the model is free again


def test_a_stream_over_grpc(streaming: Server) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    found: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def given(name: str, body: bytes) -> dict[str, Any]:
        inputs = []
        for key, value in (("body", body), ("media_type", b"application/json")):
            tensor = grpc.InferInput(key, [1], "BYTES")
            tensor.set_data_from_numpy(np.array([value], object))
            inputs.append(tensor)
        return {"model_name": name, "inputs": inputs}

    x = grpc.InferInput("x", [1, 6], "FP32")
    x.set_data_from_numpy(np.ones((1, 6), np.float32))
    with grpc.InferenceServerClient(f"127.0.0.1:{streaming.grpc_port}") as client:
        client.start_stream(lambda result, error: found.put((result, error)))
        client.async_stream_infer(**given("count", b"2"), enable_empty_final_response=True)
        client.async_stream_infer("none", [x])
        client.async_stream_infer("graph", [x])
        answers = [found.get() for _ in range(5)]
        client.stop_stream()
    (first, _), (second, _), (end, _), (_, error), (numbers, _) = answers
    assert [r.as_numpy("body").tolist() for r in (first, second)] == [[b'{"number": 0}'], [b'{"number": 1}']]
    assert end.get_response().parameters["triton_final_response"].bool_param and not end.get_response().outputs
    assert "there is no model" in str(error)
    assert numbers.as_numpy("output_0").shape == (1, 3)
