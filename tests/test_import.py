"""What ``import tracecomp`` loads."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_no_optional_or_late_dependency() -> None:
    loaded = run("import sys, tracecomp; print(*sorted(m for m in sys.modules if '.' not in m))").split()
    assert "numpy" in loaded
    assert not {"llvmlite", "networkx", "tqdm", "torch", "ml_dtypes", "safetensors", "multiprocessing"} & set(loaded)


def test_import_loads_eager_mode_and_nothing_of_the_compiler() -> None:
    """How long it takes is for ``python -X importtime``; what is loaded decides it."""
    code = "import sys, tracecomp; print(*{m.split('.')[1] for m in sys.modules if m.startswith('tracecomp.')})"
    rooms = set(run(code).split())
    late = {
        "codegen",
        "compiled",
        "demo",
        "distributions",
        "inspect",
        "nn",
        "onnx",
        "optim",
        "passes",
        "record",
        "utils",
    }
    assert {"eager", "functional", "ops"} <= rooms and not rooms & late
