"""Request identifiers, log lines, spans and TLS."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.serve.conftest import Server
from tests.serve.test_command import told
from tests.serve.test_in_process import ask
from tests.serve.test_server import body
from tracecomp import serve
from tracecomp.serve import observation
from tracecomp.serve.grpc_messages import SERVICE, message

ONES = json.dumps(body(np.ones((1, 6), np.float32)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, its key, and one file with both."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=made, check=True)
    (made / "both.pem").write_text((made / "key.pem").read_text() + (made / "cert.pem").read_text())
    return made


@pytest.fixture(scope="module")
def secure(folder: Path, models: Path) -> Iterator[Server]:
    with open(folder / "log", "w") as log:
        options = ("--certfile", str(folder / "both.pem"), "--log-requests", "--log-json")
        made = Server(models, *options, log=log)
        yield made
        assert made.stop() == 0


def infer(server: Server, folder: Path, headers: dict[str, str]) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    connection.request("POST", "/v2/models/scaled/infer", ONES, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def remote(server: Server, folder: Path, **options: Any) -> tuple[Any, Any]:
    """The answer of a call over gRPC, and the call."""
    credentials = grpc.ssl_channel_credentials((folder / "cert.pem").read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelMetadata", message("ModelMetadataRequest").SerializeToString,
            message("ModelMetadataResponse").FromString,
        )  # fmt: skip
        return call.with_call(message("ModelMetadataRequest")(name="scaled"), **options)


def test_both_protocols_are_encrypted(secure: Server, folder: Path) -> None:
    assert secure.told == (
        f"serving 3 models on https://127.0.0.1:{secure.port} and grpcs://127.0.0.1:{secure.grpc_port}\n"
    )
    assert infer(secure, folder, {}).status == 200
    assert [*remote(secure, folder)[0].versions] == ["1", "3"]
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection("127.0.0.1", secure.port).request("GET", "/ping")
    plain = http.client.HTTPConnection("127.0.0.1", secure.port)
    plain.request("GET", "/ping")
    with pytest.raises(OSError):
        plain.getresponse()


def test_identifiers_are_returned_and_logged(secure: Server, folder: Path) -> None:
    assert infer(secure, folder, {"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    made = infer(secure, folder, {"X-Request-Id": "two words"}).headers["x-request-id"]
    assert made is not None and len(made) == 32
    call = remote(secure, folder, metadata=(("x-request-id", "mine-2"),))[1]
    assert ("x-request-id", "mine-2") in call.trailing_metadata()
    lines: dict[str, Any] = {}
    while "mine-2" not in lines:  # a line is written behind the answer
        written = (folder / "log").read_text().rpartition("\n")[0].splitlines()
        lines = {line["request_id"]: line for line in map(json.loads, written)}
    assert lines["mine-1"].items() >= {
        "level": "INFO", "message": "POST /v2/models/scaled/infer 200", "status": 200, "model": "scaled",
        "version": "3",
    }.items()  # fmt: skip
    assert lines["mine-2"]["message"] == "gRPC model_metadata 200" and lines["mine-2"]["seconds"] > 0
    assert made in lines


def test_certificates_that_cannot_be_read(folder: Path, models: Path) -> None:
    for options in (["cert.pem"], ["none.pem"], ["cert.pem", "--keyfile", str(folder / "none.pem")]):
        options[0] = str(folder / options[0])
        code, text = told(str(models), "--port", "0", "--grpc-port", "0", "--certfile", *options)
        assert code == 2 and text.startswith("error: cannot read the certificate: ") and "Traceback" not in text


def test_spans(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    modules = observation._opentelemetry()
    assert modules is not None
    monkeypatch.setattr(modules[0], "_TRACER_PROVIDER", provider)

    async def main() -> None:
        app = serve.app({"triple": models / "scaled/3/model.tcp"})
        await app.start()
        await app.engine.settled()
        assert (await ask(app, "POST", "/v2/models/triple/infer", ONES.encode()))[0] == 200
        assert (await ask(app, "GET", "/v2/models/none"))[0] == 404
        await app.close()

    asyncio.run(main())
    first, second = memory.get_finished_spans()
    assert first.name == "POST /v2/models/triple/infer" and first.kind.name == "SERVER"
    assert (first.attributes["tracecomp.model"], first.attributes["tracecomp.status"]) == ("triple", 200)
    assert second.attributes["tracecomp.status"] == 404
