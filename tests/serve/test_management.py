"""The management port: load, unload, list and switch versions."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import ROOT, Server
from tests.serve.test_server import body, call, post
from tracecomp.serve.engine import Engine, ModelVersion
from tracecomp.serve.repository import Entry
from tracecomp.serve.settings import Settings

ONES = body(np.ones((1, 6), np.float32))


class Managed(Server):
    """A server with a management port, whose folder begins with version 1 of "scaled"."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        super().__init__(folder, "--management-port", "0", *options)
        found = re.fullmatch(r"management on http://127\.0\.0\.1:(\d+) with token (\S+)\n", self.line)
        assert found, self.line
        self.management_port, self.token = int(found[1]), found[2]
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def manage(self, method: str, path: str, told: Any = None, token: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.management_port, timeout=100)
        content = None if told is None else json.dumps(told)
        connection.request(method, path, content, {"Authorization": f"Bearer {token or self.token}"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def factor(self, path: str = "scaled") -> tuple[int, float]:
        """Status and first number of an answer."""
        status, answer = post(self, f"/v2/models/{path}/infer", ONES)
        return status, answer["outputs"][0]["data"][0] if status == 200 else 0.0


@pytest.fixture(scope="module")
def manager(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("managed")
    shutil.copytree(models / "scaled" / "1", folder / "scaled" / "1")
    made = Managed(folder)
    yield made
    assert made.stop() == 0


@pytest.fixture
def managed(manager: Managed, models: Path) -> Iterator[Managed]:
    """The shared server; after a test, its folder and models are again those of its start."""
    yield manager
    for name in {state["name"] for state in manager.manage("POST", "/v2/repository/index", {"ready": True})[1]}:
        assert manager.manage("POST", f"/v2/repository/models/{name}/unload")[0] == 200
    for path in manager.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(models / "scaled" / "1", manager.folder / "scaled" / "1")
    assert manager.manage("POST", "/v2/repository/models/scaled/load")[0] == 200


def test_versions_are_switched_without_a_failed_request(managed: Managed, models: Path) -> None:
    shutil.copytree(models / "scaled" / "3", managed.folder / "scaled" / "3")
    with ThreadPoolExecutor(5) as pool:
        stop: list[None] = []

        def ask() -> list[tuple[int, float]]:
            answers = []
            while not stop:
                answers.append(managed.factor())
            return answers

        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for _ in range(2):  # the second time, the new version has the number of the old one
                assert managed.manage("POST", "/models?url=scaled/3/model.tcp&synchronous=true")[0] == 200
            assert managed.factor() == (200, 3.0)
            assert managed.manage("PUT", "/models/scaled/1/set-default")[0] == 200
            assert managed.factor() == (200, 1.0)
            assert managed.manage("DELETE", "/models/scaled/1")[0] == 200
            assert managed.factor() == (200, 3.0)
        finally:
            stop.append(None)
        answers = [answer for one in asking for answer in one.result()]
    assert {*answers} <= {(200, 1.0), (200, 3.0)}
    assert managed.factor("scaled/versions/1")[0] == 404


def test_commands_of_the_page(managed: Managed, models: Path) -> None:
    shutil.copytree(models / "scaled" / "3", managed.folder / "scaled" / "2")
    assert managed.manage("POST", "/models?url=scaled/2/model.tcp")[0] == 200
    for line in re.findall(r"^curl -H .*$", (ROOT / "docs" / "serving.md").read_text(), re.MULTILINE):
        command = line.replace("secret", managed.token).replace(":8002/", f":{managed.management_port}/")
        command = command.replace("iris/2", "scaled/1").replace("iris", "scaled").replace("curl", "curl -sSf", 1)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        loaded = {"status": 'Model "scaled" Version: 1 registered with 1 initial workers'}
        assert "weights" in answer or answer == loaded


@pytest.mark.parametrize(
    ("inserted", "default"),
    [("1", "1"), ("1 3", "3"), ("3 1", "3"), ("1 3 =1 2", "1"), ("1 3 =1 3", "3"), ("9 10", "10")],
)
def test_the_default_version(tmp_path: Path, inserted: str, default: str) -> None:
    engine = Engine([])
    for version in inserted.split():
        if version.startswith("="):
            engine._defaults["m"] = version[1:]
        else:
            engine._insert(ModelVersion(Entry("m", version, tmp_path / "m.tcp", Settings()), engine.metrics))
    assert engine.find("m").version == default


def test_repository_extension(managed: Managed, models: Path) -> None:
    shutil.copy(models / "graph.tcp", managed.folder)
    ready = {"name": "scaled", "version": "1", "state": "READY", "reason": ""}
    index = "/v2/repository/index"
    unloaded = {"name": "graph", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    assert managed.manage("POST", index, {}) == (200, [ready, unloaded])
    assert managed.manage("POST", index, {"ready": True}) == (200, [ready])
    assert managed.manage("POST", "/v2/repository/models/graph/load", {}) == (200, {})
    assert managed.factor("graph")[0] == 200
    shutil.rmtree(managed.folder / "scaled" / "1")
    shutil.copytree(models / "scaled" / "3", managed.folder / "scaled" / "3")
    assert managed.manage("POST", "/v2/repository/models/scaled/load", {}) == (200, {})
    assert json.loads(call(managed, "/v2/models/scaled")[1])["versions"] == ["3"]
    assert managed.manage("POST", "/v2/repository/models/scaled/unload", {}) == (200, {})
    assert managed.factor()[0] == 404
    assert managed.manage("POST", "/v2/repository/models/scaled/unload", {})[0] == 404


def test_repository_extension_of_grpc(managed: Managed, models: Path) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    shutil.copy(models / "graph.tcp", managed.folder)
    token = {"authorization": f"Bearer {managed.token}"}
    with grpc.InferenceServerClient(f"127.0.0.1:{managed.grpc_port}") as client:
        index = client.get_model_repository_index(headers=token)
        assert [(m.name, m.version, m.state) for m in index.models] == [
            ("scaled", "1", "READY"), ("graph", "1", "UNAVAILABLE")
        ]  # fmt: skip
        client.load_model("graph", headers=token)
        assert managed.factor("graph")[0] == 200
        client.unload_model("graph", headers=token)
        assert managed.factor("graph")[0] == 404
        for call, text in (
            (lambda: client.get_model_repository_index(), "UNAUTHENTICATED"),
            (lambda: client.load_model("graph", headers={"authorization": "Bearer guess"}), "UNAUTHENTICATED"),
            (lambda: client.load_model("none", headers=token), "NOT_FOUND"),
            (lambda: client.load_model("graph", headers=token, config="{}"), "INVALID_ARGUMENT"),
        ):
            with pytest.raises(grpc.InferenceServerException, match=text):
                call()


def test_descriptions_and_refusals(managed: Managed) -> None:
    assert managed.manage("GET", "/models") == (
        200, {"models": [{"modelName": "scaled", "modelUrl": "scaled/1/model.tcp"}]}
    )  # fmt: skip
    (one,) = managed.manage("GET", "/models/scaled")[1]
    assert (one["modelVersion"], one["defaultVersion"], one["workers"][0]["status"]) == ("1", True, "READY")
    assert managed.manage("GET", "/models/scaled/all")[1] == [one]
    (managed.folder / "broken.tcp").write_bytes(b"nothing")
    (managed.folder.parent / "outside.tcp").write_bytes(b"nothing")
    refused: list[tuple[str, str, Any, int]] = [
        ("POST", "/models?url=broken.tcp", None, 400),
        ("POST", "/models?url=../outside.tcp", None, 404),
        ("POST", f"/models?url={managed.folder}/scaled/1/model.tcp", None, 404),
        ("POST", "/models?url=http://127.0.0.1/model.tcp", None, 404),
        ("POST", "/models?url=scaled/1/model.tcp&model_name=other", None, 400),
        ("POST", "/models?url=scaled/1/model.tcp&initial_workers=2", None, 400),
        ("POST", "/v2/repository/models/scaled/load", {"parameters": {"config": "{}"}}, 400),
        ("POST", "/v2/repository/index", [], 400),
        ("GET", "/models/none", None, 404),
        ("DELETE", "/models/scaled/7", None, 404),
        ("PUT", "/models/scaled/7/set-default", None, 404),
    ]
    for method, path, told, status in refused:
        assert managed.manage(method, path, told)[0] == status, path
        assert managed.manage(method, path, told, token="guess")[0] == 401, path
    assert call(managed, "/models")[0] == 404  # the public port does not manage
    assert managed.factor() == (200, 1.0)


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_a_signal_under_load_fails_no_request(models: Path) -> None:
    server = Server(models)
    content = json.dumps(ONES)

    def ask() -> set[int]:
        """The status of requests over one connection, until the server closes it with an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
        found, is_open = set(), True
        while is_open:
            connection.request("POST", "/v2/models/scaled/infer", content)
            response = connection.getresponse()
            response.read()
            found.add(response.status)
            is_open = not response.will_close
        connection.close()
        return found

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        time.sleep(1)
        assert server.stop() == 0
        assert [one.result() for one in asking] == [{200}] * 8


def test_a_signal_lets_both_protocols_answer(models: Path) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    managed = Managed(models)
    (one,) = managed.manage("GET", "/models/scaled/3")[1]
    worker = one["workers"][0]["pid"]
    os.kill(worker, signal.SIGSTOP)  # requests stay open until it continues
    tensor = grpc.InferInput("x", [1, 6], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 6), np.float32))
    with ThreadPoolExecutor(2) as pool, grpc.InferenceServerClient(f"127.0.0.1:{managed.grpc_port}") as client:
        remote = pool.submit(client.infer, "scaled", [tensor])
        local = pool.submit(managed.factor)
        polls = [0]
        while polls[-2:] != [1, 1]:  # one request computes, and the other one waits; at first the former may wait, too
            polls.append(managed.manage("GET", "/models/scaled")[1][0]["jobQueueStatus"]["pendingRequests"])
        managed.process.send_signal(signal.SIGTERM)
        while is_open(managed.port):
            pass
        os.kill(worker, signal.SIGCONT)
        assert local.result() == (200, 3.0)
        assert remote.result().as_numpy("output_0").tolist() == [[3.0] * 6]
    with managed.process:
        assert managed.process.wait() == 0
