"""Modules that ``import tracecomp`` loads."""

from __future__ import annotations

import subprocess
import sys
from functools import cache


@cache
def loaded(statement: str) -> set[str]:
    """The modules that a new process has after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def rooms(statement: str) -> set[str]:
    return {m.split(".")[1] for m in loaded(statement) if m.startswith("tracecomp.")}


def test_import_loads_no_optional_or_late_dependency() -> None:
    found = loaded("import tracecomp")
    assert "numpy" in found
    assert not {"llvmlite", "networkx", "tqdm", "torch", "ml_dtypes", "safetensors", "multiprocessing"} & found


def test_import_loads_eager_mode_and_nothing_of_the_compiler() -> None:
    """``python -X importtime`` shows the time, which the loaded modules decide."""
    found = rooms("import tracecomp")
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
    assert {"eager", "functional", "ops"} <= found and not found & late


def test_modules_come_without_the_compiler() -> None:
    statement = "from tracecomp import nn"
    assert not {"llvmlite", "networkx", "tracecomp.compiled.function"} & loaded(statement)
    assert not {"codegen", "passes", "record"} & rooms(statement)
