"""Memory of the process: freed temporaries are reused, and arenas have separate pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tracecomp
from benchmarks.memory_growth import malloc_state
from tracecomp.runtime.malloc import aligned_bytes

TEMPORARIES = """
import sys
import tracecomp
from benchmarks.memory_growth import malloc_state
from tracecomp.eager_kernels import background

x = tracecomp.ones(1_000_000)
for n in range(40):
    if n == 20:
        background.finish()  # a second thread compiles what is called often
    y = ((x + 1) * (x + 2)) / (x + 3)
    during = malloc_state()
    del y
    after = malloc_state()
    if n >= 30 and (during.arena, during.hblks) != (after.arena, after.hblks):
        sys.exit("freed memory went back to the system")
"""


@pytest.mark.slow  # the second thread compiles when it likes, and its memory is in the account, too
@pytest.mark.skipif(malloc_state() is None, reason="the thresholds are glibc's")
def test_temporaries_of_eager_operators_take_no_new_pages() -> None:
    """Freed results of 4 MB stay in the C library's memory: it neither maps them one by one nor trims its heap."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    environment |= {"PYTHONPATH": str(Path(tracecomp.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", TEMPORARIES], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("nbytes", [0, 1, 100, 4096, 1 << 20, (5 << 20) + 7])
def test_zeroed_memory_begins_at_a_line(nbytes: int) -> None:
    for _ in range(3):
        memory = aligned_bytes(nbytes)
        assert memory.shape == (nbytes,) and memory.dtype == np.uint8
        assert nbytes == 0 or memory.ctypes.data % 64 == 0
        assert not memory.any()
        memory[:] = 255
