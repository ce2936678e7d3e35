"""Memory of the process: freed temporaries are used again, and arenas have pages of their own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from tracecomp.runtime.malloc import aligned_bytes

FAULTS = """
import resource, numpy as np, tracecomp
from tracecomp.eager_kernels import background
x = tracecomp.ones(1_000_000)
for _ in range(200):
    if _ == 100:
        background.finish()  # a second thread compiles what is called often
    if _ == 170:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = ((x + 1) * (x + 2)) / (x + 3)
    del y
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_temporaries_of_eager_operators_take_no_new_pages() -> None:
    """Five results of 4 MB in each of 30 rounds would be 150,000 pages, or 300 large ones."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    run = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True, env=environment)
    assert int(run.stdout) < 100


@pytest.mark.parametrize("nbytes", [0, 1, 100, 4096, 1 << 20, (5 << 20) + 7])
def test_zeroed_memory_begins_at_a_line(nbytes: int) -> None:
    for _ in range(3):
        memory = aligned_bytes(nbytes)
        assert memory.shape == (nbytes,) and memory.dtype == np.uint8
        assert nbytes == 0 or memory.ctypes.data % 64 == 0
        assert not memory.any()
        memory[:] = 255
