"""Compiled graphs that another process finds on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import tracecomp as torch
from tracecomp import passes

built = []
original = passes.pipeline.run
passes.pipeline.run = lambda *a, **k: (built.append(1), original(*a, **k))[1]

@torch.compile
def f(x, i):
    return torch.cumsum(x, 0).sin()[i] + torch.tensor([1.0, 2.0, 3.0])

x, i = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2])
results = [f(x, i).tolist() for _ in range(3)]
assert results[0] == f.fn(x, i).tolist() and np.allclose(results[1], results[0]) and results[1] == results[2]
print(len(built))
"""


def run(folder: Path, program: str = PROGRAM) -> str:
    # Eager operators build programs of their own, which are not counted here.
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(folder), "TRACECOMP_EAGER": "numpy"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_second_process_neither_plans_nor_generates(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    assert run(tmp_path) == "0"


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    for path in tmp_path.glob("*.o"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(bytes(data))
    assert run(tmp_path) == "1"


def test_other_constants_are_another_program(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    assert run(tmp_path, PROGRAM.replace("[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]")) == "1"


def test_other_settings_are_another_program(tmp_path: Path) -> None:
    assert run(tmp_path) == "1"
    setting = "import os; os.environ['TRACECOMP_FUSION'] = '0'\n"
    assert run(tmp_path, setting + PROGRAM) == "1"
