"""Other model servers with the same program file: ``python -m benchmarks.serving_rivals NAME FOLDER PORT``.

Each server's settings are those of its documentation for batches of up to 32 requests and one worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp

ROWS = 32
Array = np.ndarray[Any, Any]


def program(folder: Path) -> tuple[str, Callable[[Array], Array]]:
    """Name and callable of the only model in ``folder``."""
    (path,) = folder.glob("*.tcp")
    loaded = tracecomp.load_program(path, threads=1).program
    return path.stem, lambda x: np.asarray(loaded(x))


def litserve(folder: Path, port: int) -> None:
    """LitServe: batches of up to 32 requests that arrive within a millisecond."""
    import_module("benchmarks.serving_litserve").run(folder, port)


def bentoml(folder: Path, port: int) -> None:
    """BentoML: a batchable API behind one worker."""
    os.environ["BENTOML_HOME"] = str(folder / "bentoml")
    os.environ["RIVAL_MODEL"] = str(folder)
    command = [sys.executable, "-m", "bentoml", "serve", "benchmarks.serving_bentoml:Rival", "--port", str(port)]
    os.execv(sys.executable, [*command, "--host", "127.0.0.1", "--api-workers", "1"])


def mlserver(folder: Path, port: int) -> None:
    """MLServer: adaptive batches, with the inference in one separate process."""
    name, _ = program(folder)
    home = folder / "mlserver"
    home.mkdir(exist_ok=True)
    implementation = "benchmarks.serving_mlserver.Rival"
    settings = {"name": name, "implementation": implementation, "max_batch_size": ROWS, "max_batch_time": 0.001}
    (home / "model-settings.json").write_text(json.dumps(settings))
    server = {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    (home / "settings.json").write_text(json.dumps({**server, "parallel_workers": 1, "debug": False}))
    os.environ["RIVAL_MODEL"] = str(folder)
    os.execv(sys.executable, [sys.executable, "-m", "mlserver.cli.main", "start", str(home)])


RIVALS: dict[str, Callable[[Path, int], None]] = {"litserve": litserve, "bentoml": bentoml, "mlserver": mlserver}


def _v2(model: str, width: int) -> tuple[str, bytes]:
    x = {"name": "input", "datatype": "FP32", "shape": [1, width], "data": [0.5] * width}
    return f"/v2/models/{model}/infer", json.dumps({"inputs": [x]}).encode()


PATHS: dict[str, Callable[[str, int], tuple[str, bytes]]] = {
    "tracecomp": _v2,
    "mlserver": _v2,
    "litserve": lambda model, width: ("/predict", json.dumps({"x": [0.5] * width}).encode()),
    "bentoml": lambda model, width: ("/predict", json.dumps({"x": [[0.5] * width]}).encode()),
}
"""The path and body of a request of one row."""


if __name__ == "__main__":
    RIVALS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
