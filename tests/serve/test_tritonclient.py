"""tritonclient, unmodified, against a server process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import Server
from tracecomp.serve.grpc_messages import MANAGEMENT, METHODS, message

http_client = pytest.importorskip("tritonclient.http")
grpc_client = pytest.importorskip("tritonclient.grpc")


@pytest.fixture(params=["http", "grpc"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    module, port = (http_client, server.port) if request.param == "http" else (grpc_client, server.grpc_port)
    made = module.InferenceServerClient(f"127.0.0.1:{port}")
    made.module = module
    yield made
    made.close()


def given(client: Any, x: np.ndarray[Any, Any]) -> Any:
    tensor = client.module.InferInput("x", [*x.shape], "FP32")
    tensor.set_data_from_numpy(x)
    return [tensor]


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("graph")
    options = {} if client.module is http_client else {"as_json": True}
    told = client.get_model_metadata("scaled", **options)
    assert told["versions"] == ["1", "3"] and [*map(int, told["inputs"][0]["shape"])] == [-1, 6]
    assert client.get_server_metadata(**options)["name"] == "tracecomp"


def test_inference(client: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 6), np.float32)
    wanted = [client.module.InferRequestedOutput("output_0")]
    for outputs in (None, wanted):
        result = client.infer("scaled", given(client, x), "1", outputs, request_id="9", priority=2, timeout=60_000_000)
        assert result.as_numpy("output_0").tobytes() == x.tobytes()


def test_errors_have_the_reason(client: Any) -> None:
    for name, x, text in (("none", np.ones((1, 6)), "there is no model"), ("graph", np.ones((1, 5)), "expected FP32")):
        with pytest.raises(client.module.InferenceServerException, match=text):
            client.infer(name, given(client, x.astype(np.float32)))


def test_http_json_and_binary_inputs(server: Server) -> None:
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    x = np.array([[1e-45, -0.0, np.nan, np.inf, 1.1, 3e38]], np.float32)
    for binary_in in (True, False):
        for binary_out in (True, False):
            tensor = http_client.InferInput("x", [1, 6], "FP32")
            tensor.set_data_from_numpy(x, binary_data=binary_in)
            output = http_client.InferRequestedOutput("output_0", binary_data=binary_out)
            result = client.infer("scaled", [tensor], "1", [output]).as_numpy("output_0")
            assert result.tobytes() == x.tobytes()
    client.close()


def test_messages_have_the_fields_of_the_proto_file() -> None:
    theirs = grpc_client.service_pb2.DESCRIPTOR

    def fields(descriptor: Any, seen: dict[str, Any]) -> dict[str, Any]:
        if descriptor.full_name not in seen:
            seen[descriptor.full_name] = [
                (f.name, f.number, f.type, f.is_repeated, f.containing_oneof and f.containing_oneof.name)
                for f in descriptor.fields
            ]
            for f in descriptor.fields:
                if f.message_type:
                    fields(f.message_type, seen)
        return seen

    names = [f"{method}{kind}" for method in (*METHODS, *MANAGEMENT) for kind in ("Request", "Response")]
    for name in (*names, "ModelStreamInferResponse"):
        assert fields(message(name).DESCRIPTOR, {}) == fields(theirs.message_types_by_name[name], {})
