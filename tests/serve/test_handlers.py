"""Archives with handlers: limits of unpacking, and code only where it is allowed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.serve.conftest import Server
from tests.serve.test_server import call, post
from tracecomp.base.errors import TracecompError
from tracecomp.serve.archive import MANIFEST, MOST_FILES, unpack

STEPS = """
import helper
from tracecomp import load_program, tensor


class Handler:
    def initialize(self, context):
        self.program = load_program(context.system_properties["model_dir"] + "/model.tcp").program

    def preprocess(self, data):
        return tensor([row["body"] for row in data])

    def inference(self, x):
        return self.program(x)

    def postprocess(self, y):
        return helper.nested(y)
"""
FUNCTION = """
def entry(data, context):
    if data is None:
        return None
    body = data[0]["body"]
    if body == b"fail":
        raise KeyError("this body")
    return ["many", "results"] if body == b"two" else [body[::-1]]
"""

MEMORY = """
def handle(data, context):
    return None if data is None else [str(len(bytearray(int(data[0]["body"]))))]
"""


def archive(path: Path, handler: str, files: Mapping[str, str | bytes]) -> Path:
    manifest = json.dumps({"model": {"modelName": path.stem, "handler": handler}})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in {MANIFEST: manifest, **files}.items():
            made.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def folder(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A handler class with a program and a further module, and a function."""
    made = tmp_path_factory.mktemp("archives")
    program = (models / "scaled" / "3" / "model.tcp").read_bytes()
    helper = "def nested(y):\n    return y.tolist()\n"
    archive(made / "steps.mar", "main.py", {"main.py": STEPS, "helper.py": helper, "model.tcp": program})
    archive(made / "function.mar", "main:entry", {"main.py": FUNCTION})
    archive(made / "memory.mar", "main", {"main.py": MEMORY})
    (made / "memory.json").write_text('{"max_memory_mb": 500}')
    return made


def test_handlers_answer_predictions(folder: Path) -> None:
    server = Server(folder, "--allow-code")
    x = np.arange(6.0).tolist()
    kind = {"Content-Type": "application/json"}
    status, content = call(server, "/predictions/steps", json.dumps(x).encode(), kind)
    assert (status, json.loads(content)) == (200, [3 * v for v in x])
    assert call(server, "/predictions/steps", b"{", kind)[0] == 400
    assert call(server, "/predictions/function", b"\x00abc") == (200, b"cba\x00")
    assert call(server, "/predictions/function", b"") == (200, b"")
    status, content = call(server, "/predictions/function", b"fail")
    assert status == 500 and b"KeyError" in content
    assert call(server, "/predictions/function", b"two")[0] == 500
    status, content = call(server, "/predictions/memory", str(600 << 20).encode())
    assert status == 503 and b"out of memory" in content
    assert call(server, "/predictions/memory", b"1000") == (200, b"1000")
    tensors = [{"name": n, "datatype": "BYTES", "shape": [1], "data": ["äb"]} for n in ("body", "media_type")]
    message = {"inputs": tensors, "outputs": [{"name": "body", "parameters": {"binary_data": True}}]}
    status, content = call(server, "/v2/models/function/infer", json.dumps(message).encode())
    assert status == 200 and content.endswith(b"\x03\0\0\0b\xa4\xc3")
    del message["outputs"]
    status, answer = post(server, "/v2/models/function/infer", message)
    assert status == 400 and "not UTF-8" in answer["error"]
    tensors[0]["data"] = ["ab"]
    status, answer = post(server, "/v2/models/function/infer", message)
    assert status == 200 and answer["outputs"][0]["data"] == ["ba"]
    tensors[0]["data"] = ["\ud800"]
    assert post(server, "/v2/models/function/infer", message)[0] == 400
    assert server.stop() == 0


def link() -> zipfile.ZipInfo:
    made = zipfile.ZipInfo("link")
    made.external_attr = 0o120777 << 16
    return made


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a\\..\\out", "C:/out", "a/\x01", " "])
def test_names_outside_the_folder(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "m.mar", "main.py", {name: "x"})
    (tmp_path / "to").mkdir()
    with pytest.raises(TracecompError, match="not allowed"):
        unpack(path, tmp_path / "to")
    assert not [*(tmp_path / "to").iterdir()]


def test_limits_of_archives(tmp_path: Path) -> None:
    def refused(text: str, path: Path, **options: int) -> None:
        target = tmp_path / f"to{len([*tmp_path.iterdir()])}"
        target.mkdir()
        with pytest.raises(TracecompError, match=text):
            unpack(path, target, **options)

    refused("limit of unpacked bytes", archive(tmp_path / "a.mar", "m.py", {"zeros": bytes(10_000)}), most_bytes=9_000)
    refused("the limit is", archive(tmp_path / "b.mar", "m.py", {str(k): "" for k in range(MOST_FILES)}))
    with zipfile.ZipFile(archive(tmp_path / "c.mar", "m.py", {}), "a") as made:
        made.writestr(link(), "/etc/passwd")
    refused("not a regular file", tmp_path / "c.mar")
    with zipfile.ZipFile(tmp_path / "d.mar", "w") as made:
        made.writestr("m.py", "")
    refused("is missing", tmp_path / "d.mar")
    (tmp_path / "e.mar").write_bytes(b"nothing")
    refused("not a valid archive", tmp_path / "e.mar")
    manifest = json.dumps({"model": {"handler": "m.py", "requirementsFile": "r.txt"}})
    with zipfile.ZipFile(tmp_path / "f.mar", "w") as made:
        made.writestr(MANIFEST, manifest)
    refused("requirementsFile", tmp_path / "f.mar")
