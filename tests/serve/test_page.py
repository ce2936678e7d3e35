"""The commands of docs/serving.md, against a server of the folder that the page makes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.serve.conftest import ROOT, Server

PAGE = ROOT / "docs" / "serving.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_commands_and_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    page = PAGE.read_text()
    blocks = list(BLOCK.finditer(page))
    monkeypatch.chdir(tmp_path)
    save = next(b[2] for b in blocks if b[1] == "python")
    (tmp_path / "page.py").write_text(save)  # a recorded function needs its source
    exec(compile(save, str(tmp_path / "page.py"), "exec"), {"__name__": "page"})
    start, answers = [k for k, b in enumerate(blocks) if b[1] == "sh" and blocks[k + 1][1] == "text"]
    assert blocks[start][2] == "python -m tracecomp serve models/\n"
    server = Server(tmp_path / "models")
    told = f"{server.told}ready\n".replace(str(server.port), "8000").replace(str(server.grpc_port), "8001")
    commands = blocks[answers][2].replace(":8000/", f":{server.port}/").splitlines()
    found = [subprocess.run(["bash", "-c", c], capture_output=True, text=True, check=True).stdout for c in commands]
    assert server.stop() == 0
    shown = {start + 1: told, answers + 1: "".join(f"{text}\n" for text in found)}
    if pytestconfig.getoption("--update"):
        for k in reversed(shown):
            page = f"{page[: blocks[k].start(2)]}{shown[k]}{page[blocks[k].end(2) :]}"
        PAGE.write_text(page)
    for k, text in shown.items():
        assert pytestconfig.getoption("--update") or blocks[k][2] == text
