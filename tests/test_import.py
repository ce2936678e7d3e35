"""What ``import tracecomp`` loads, and how long it takes."""

from __future__ import annotations

import statistics
import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_no_optional_or_late_dependency() -> None:
    loaded = run("import sys, tracecomp; print(*sorted(m for m in sys.modules if '.' not in m))").split()
    assert "numpy" in loaded
    assert not {"llvmlite", "networkx", "tqdm", "torch", "ml_dtypes", "safetensors", "multiprocessing"} & set(loaded)


def test_import_takes_less_than_twice_the_time_of_numpy() -> None:
    timed = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
    rounds = [(float(run(timed.format("numpy"))), float(run(timed.format("tracecomp")))) for _ in range(9)]
    numpy, own = (statistics.median(column) for column in zip(*rounds, strict=True))
    assert own < 2 * numpy, f"import tracecomp takes {own:.3f} s, numpy {numpy:.3f} s"
