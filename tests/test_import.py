"""What ``import tracecomp`` loads, and how long it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(code: str, cache: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    if cache is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(cache)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_import_loads_no_optional_or_late_dependency() -> None:
    loaded = run("import sys, tracecomp; print(*sorted(m for m in sys.modules if '.' not in m))").split()
    assert "numpy" in loaded
    assert not {"llvmlite", "networkx", "tqdm", "torch", "ml_dtypes", "safetensors", "multiprocessing"} & set(loaded)


def test_importing_takes_less_than_twice_the_time_of_numpy(tmp_path: Path) -> None:
    """Inside a process, by the importing thread's clock; what other work on the machine adds is not the import's."""
    seconds("tracecomp", tmp_path)  # writes the bytecode
    rounds = [(seconds("numpy", tmp_path), seconds("tracecomp", tmp_path)) for _ in range(10)]
    numpy, own = map(min, zip(*rounds, strict=True))
    assert own < 2 * numpy, f"importing tracecomp takes {own:.3f} s, numpy {numpy:.3f} s"


def seconds(module: str, cache: Path) -> float:
    code = f"import time; start = time.thread_time(); import {module}; print(time.thread_time() - start)"
    return float(run(code, cache))
