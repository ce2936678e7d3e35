"""Snapshots: a restarted server continues with the models, defaults and traffic of the killed one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.serve.test_management import Managed
from tests.serve.test_server import call
from tracecomp.base.errors import TracecompError
from tracecomp.serve.snapshot import Snapshot


def test_a_restarted_server_continues(models: Path, tmp_path: Path) -> None:
    folder, file = tmp_path / "models", tmp_path / "snapshot.json"
    shutil.copytree(models, folder)
    first = Managed(folder, "--snapshot", str(file))
    assert not file.exists()  # nothing has changed yet
    assert first.manage("DELETE", "/models/graph")[0] == 200
    assert first.manage("PUT", "/models/scaled/1/set-default")[0] == 200
    assert first.manage("PUT", "/traffic/scaled", {"shadow": "3"})[0] == 200
    with first.process:
        first.process.kill()
    second = Managed(folder, "--snapshot", str(file))
    assert second.told.startswith("serving 2 models ")
    assert second.factor() == (200, 1.0)
    assert second.manage("GET", "/traffic/scaled") == (200, {"weights": {}, "shadow": "3"})
    assert call(second, "/v2/models/graph")[0] == 404
    assert second.manage("POST", "/models?url=graph.tcp")[0] == 200
    shutil.rmtree(folder / "scaled" / "1")
    assert second.stop() == 0
    assert sorted(json.loads(file.read_text())) == ["graph", "scaled"]
    third = Managed(folder, "--snapshot", str(file))
    assert third.factor() == (200, 3.0)
    assert call(third, "/v2/models/graph")[0] == 200
    assert third.stop() == 0


@pytest.mark.parametrize("content", ["", "[]", '{"m": {}}', '{"m": {"files": [1], "default": "1"}}'])
def test_a_file_that_is_no_snapshot(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(TracecompError, match="is not a snapshot"):
        Snapshot(tmp_path / "s.json", tmp_path).select([])
