"""The command line: its errors when it cannot serve."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tracecomp as torch
from tests.serve.conftest import ROOT, Server
from tests.serve.test_extra import SERVING
from tests.serve.test_handlers import archive
from tests.serve.test_server import call


def told(*args: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tracecomp", "serve", *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    return done.returncode, done.stderr


def test_there_is_no_folder(tmp_path: Path) -> None:
    assert told(str(tmp_path / "none")) == (2, f"error: {tmp_path / 'none'} is not a folder of models\n")


def test_a_port_is_taken(server: Server, models: Path) -> None:
    code, text = told(str(models), "--port", str(server.port))
    assert code == 2 and text == f"error: cannot listen on 127.0.0.1:{server.port}: Address already in use\n"


def test_the_packages_are_missing() -> None:
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({SERVING}))\n"
        "from tracecomp.__main__ import main\nsys.exit(main(['serve', '.']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'tracecomp[serve]'\n") and "Traceback" not in done.stderr


def test_importing_the_package_loads_none_of_them() -> None:
    code = "import sys, tracecomp.__main__, tracecomp.serve\nprint([m for m in sys.modules if m.split('.')[0] in {}])"
    names = {"starlette", "uvicorn", "grpc", "pydantic", "prometheus_client", "asyncio.runners"}
    done = subprocess.run([sys.executable, "-c", code.format(names)], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n"


def test_code_needs_its_digest_or_an_option(tmp_path: Path) -> None:
    torch.compile(lambda x: x + 1).save(tmp_path / "code.tcp", torch.ones(2), levels=["x86-64-v2"])
    shutil.copy(tmp_path / "code.tcp", tmp_path / "other.tcp")
    (tmp_path / "other.json").write_text('{"digest": "sha256:0"}')
    trace = tmp_path / "ran"
    archive(tmp_path / "handler.mar", "main.py", {"main.py": f"open({str(trace)!r}, 'w')"})
    server = Server(tmp_path)
    for path, text in (("v2/models/code", b"digest"), ("v2/models/other", b"digest"),
                       ("v2/models/handler", b"--allow-code")):  # fmt: skip
        status, content = call(server, f"/{path}")
        assert status == 503 and text in content
    assert call(server, "/predictions/handler", b"")[0] == 503 and not trace.exists()
    assert server.stop() == 0
