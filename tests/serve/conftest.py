"""A folder of small models, and a server process for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import pytest

import tracecomp as torch
from tests.serve.test_extra import SERVING
from tracecomp import nn
from tracecomp.export import Dim

if not all(map(find_spec, SERVING)):
    collect_ignore_glob = ["test_[!e]*.py"]  # all but test_extra.py, which is skipped with the reason

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests more time: a server is several processes, which may wait long for busy processors."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(900))


class Server:
    """A running server: its process and the ports it has printed."""

    def __init__(self, folder: Path, *options: str, log: IO[str] | None = None) -> None:
        command = [sys.executable, "-m", "tracecomp", "serve", str(folder), "--port", "0", "--grpc-port", "0", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        self.told = self.process.stdout.readline()
        found = re.search(r"https?://127\.0\.0\.1:(\d+) and grpcs?://127\.0\.0\.1:(\d+)", self.told)
        assert found, self.told
        self.port, self.grpc_port = int(found[1]), int(found[2])
        self.line = self.process.stdout.readline()  # "ready", or the management port

    def processes(self) -> list[int]:
        """All running processes below the server: its spawner and the workers."""
        parents: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has just ended
                pid, _, rest = path.read_text().partition(" (")
                state, parent = rest.rpartition(") ")[2].split()[:2]
                parents[int(pid)] = 0 if state == "Z" else int(parent)
        found = [self.process.pid]
        for process in found:
            found += [pid for pid in parents if parents[pid] == process]
        return found[1:]

    def stop(self) -> int:
        """Send SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        with self.process:
            return self.process.wait(60)


def network() -> nn.Module:
    """A small classifier with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)).eval()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph program, an exported program and two versions of one."""
    folder = tmp_path_factory.mktemp("models")
    module, x = network(), torch.ones(2, 6)
    sizes = {"x": {0: Dim("rows", max=8)}}
    torch.compile(lambda x: module(x)).save(folder / "graph.tcp", x, kind="graph", dynamic_shapes=sizes)
    for version, factor in (("1", 1.0), ("3", 3.0)):
        (folder / "scaled" / version).mkdir(parents=True)
        scaled = torch.compile(lambda x, factor=factor: x * factor)
        scaled.save(folder / "scaled" / version / "model.tcp", x, kind="graph", dynamic_shapes=sizes)
    return folder


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[Server]:
    """A server of that folder."""
    made = Server(models)
    yield made
    assert made.stop() == 0
