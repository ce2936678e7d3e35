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


def test_import_takes_less_than_twice_the_time_of_numpy(tmp_path: Path) -> None:
    timed = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"
    rounds = [
        (float(run(timed.format("numpy"), tmp_path)), float(run(timed.format("tracecomp"), tmp_path))) for _ in range(8)
    ]
    numpy, own = map(min, zip(*rounds, strict=True))  # what other work on the machine adds is not the import's
    assert own < 2 * numpy, f"import tracecomp takes {own:.3f} s, numpy {numpy:.3f} s"
