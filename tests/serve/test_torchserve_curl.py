"""The curl calls of TorchServe's documentation, answered in its form."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_handlers import archive
from tests.serve.test_management import Managed

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
PICTURE = b"\xff\xd8\r\n--\r\nBoundary\n\r\xff\xd9"
FORM = """
def handle(data, context):
    return None if data is None else [{k: v.hex() if isinstance(v, bytes) else v for k, v in data[0].items()}]
"""


@pytest.fixture(scope="module")
def noop(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """Versions 1 and 3 of "scaled", and the handler "noop"."""
    folder = tmp_path_factory.mktemp("curl")
    shutil.copytree(models / "scaled", folder / "scaled")
    archive(folder / "noop.mar", "main", {"main.py": FORM})
    (folder / "kitten_small.jpg").write_bytes(PICTURE)
    (folder / "rows.json").write_text(json.dumps({"instances": [[1.0] * 6, [2.0] * 6]}))
    made = Managed(folder, "--allow-code")
    yield made
    assert made.stop() == 0


def curl(server: Managed, arguments: str) -> tuple[int, Any]:
    """Status and answer of ``curl arguments``; 8080 and 8081 are the ports of TorchServe."""
    for theirs, ours in (("8080", server.port), ("8081", server.management_port)):
        arguments = arguments.replace(f"localhost:{theirs}", f"127.0.0.1:{ours}")
    command = f"curl -s -w '\\n%{{http_code}}' -H 'Authorization: Bearer {server.token}' {arguments}"
    done = subprocess.run(["bash", "-c", command], cwd=server.folder, capture_output=True, text=True, check=True)
    answer, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(answer)


def test_predictions(noop: Managed) -> None:
    assert curl(noop, "http://localhost:8080/ping") == (200, {"status": "Healthy"})
    for version in ("", "/1"):
        url = f"http://localhost:8080/predictions/noop{version}"
        assert curl(noop, f"{url} -T kitten_small.jpg") == (200, {"body": PICTURE.hex()})
        assert curl(noop, f'{url} -F "data=@kitten_small.jpg"') == (200, {"data": PICTURE.hex()})
        several = "-F 'a=@kitten_small.jpg' -F 'b=text'"
        assert curl(noop, f"{url} {several}") == (200, {"a": PICTURE.hex(), "b": b"text".hex()})
    status, answer = curl(noop, f"{url} -H 'Content-Type: multipart/form-data; boundary=x' -d '--x'")
    assert status == 400 and "its end is missing" in answer["error"]
    rows = '-H "Content-Type: application/json" --data @rows.json http://localhost:8080/v1/models/scaled:predict'
    assert curl(noop, rows) == (200, {"predictions": [[3.0] * 6, [6.0] * 6]})
    named = json.dumps({"instances": [{"x": [1.0] * 6}]})
    assert curl(noop, f"-d '{named}' http://localhost:8080/v1/models/scaled:predict") == (
        200,
        {"predictions": [[3.0] * 6]},
    )
    for wrong in ("[]", "{}", '{"instances": []}', '{"instances": [{"x": 1}, {"y": 1}]}', '{"instances": [[1], 2]}'):
        assert curl(noop, f"-d '{wrong}' http://localhost:8080/v1/models/scaled:predict")[0] == 400


def test_management(noop: Managed) -> None:
    models = "http://localhost:8081/models"
    registered = {"status": 'Model "noop" Version: 1 registered with 1 initial workers'}
    assert curl(noop, f'-X POST "{models}?url=noop.mar"') == (200, registered)
    assert curl(noop, f'-X POST "{models}?initial_workers=1&synchronous=true&url=noop.mar"') == (200, registered)
    later = {"status": "Processing worker updates..."}
    assert curl(noop, f'-X POST "{models}?initial_workers=1&synchronous=false&url=noop.mar"') == (202, later)
    assert curl(noop, f'-X PUT "{models}/noop?min_worker=1"') == (202, later)
    assert curl(noop, f'-X PUT "{models}/scaled/1?min_worker=1&synchronous=true"') == (
        200,
        {"status": "Workers scaled to 1 for model: scaled, version: 1"},
    )
    status, answer = curl(noop, f'-X PUT "{models}/noop?min_worker=3"')
    assert status == 400 and "1 worker process" in answer["error"]
    status, (told,) = curl(noop, f"{models}/scaled/3")
    assert status == 200 and (told["modelName"], told["modelVersion"]) == ("scaled", "3")
    (worker,) = told["workers"]
    assert worker["status"] == "READY" and worker["memoryUsage"] > 1 << 20 and worker["startTime"] and not worker["gpu"]
    assert [one["modelVersion"] for one in curl(noop, f"{models}/scaled/all")[1]] == ["1", "3"]
    status, first = curl(noop, f'"{models}?limit=1"')
    assert status == 200 and len(first["models"]) == 1 and first["nextPageToken"] == "1"
    _, second = curl(noop, f'"{models}?limit=1&next_page_token={first["nextPageToken"]}"')
    assert {m["modelName"] for m in first["models"] + second["models"]} == {"noop", "scaled"}
    assert "nextPageToken" not in second and curl(noop, f'"{models}?limit=x"')[0] == 400
    updated = {"status": 'Default version successfully updated for model "scaled" to "1"'}
    assert curl(noop, f"-X PUT {models}/scaled/1/set-default") == (200, updated)
    assert curl(noop, f"-X DELETE {models}/scaled/1") == (200, {"status": 'Model "scaled" unregistered'})
    assert curl(noop, f'-X POST "{models}?synchronous=false&url=scaled/1/model.tcp"')[0] == 202
    end = time.monotonic() + 100
    while curl(noop, f"{models}/scaled/1")[0] == 404:
        assert time.monotonic() < end
    for port, path in (("8080", "/predictions/{name}"), ("8081", "/models/{name}")):
        status, told = curl(noop, f"-X OPTIONS http://localhost:{port}")
        assert status == 200 and told["openapi"] == "3.0.1" and path in told["paths"]
