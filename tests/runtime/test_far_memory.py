"""Programs in a process whose free memory is further away than code can reach: their parts must be adjacent."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import mmap
import numpy as np
import tracecomp as tc
from tracecomp.codegen.kernels import program

def start(memory):
    return np.frombuffer(memory, np.uint8).ctypes.data

page, read = mmap.PAGESIZE, mmap.PROT_READ
holes = [mmap.mmap(-1, page * (1 + n % 2), prot=read) for n in range(400)]
unused = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
wall = mmap.mmap(-1, 4 << 30, flags=unused, prot=read)
filled, pages = [], 4096
while pages > 2:  # whatever is longer than the holes lies below the wall from here on
    filled.append(mmap.mmap(-1, page * pages, prot=read))
    if start(filled[-1]) < start(wall):
        filled.pop()
        pages //= 2
for hole in holes[::2]:
    hole.close()

def f(x):
    y = tc.nn.functional.gelu(x @ x).softmax(1)
    return y.sum(0), y.cumsum(1), y.sort(1).values, (y.sin() * 3).exp().mean(), y.t().contiguous().argmax(0)

x = tc.linspace(-1.0, 1.0, 1600).reshape(40, 40)
want = f(x)
for program.MODULE_LENGTH in (1 << 18, 1):
    compiled = tc.compile(lambda x: f(x))
    for _ in range(3):
        have = compiled(x)
    assert all(tc.allclose(a, b) for a, b in zip(have, want))
assert not compiled.eager_because
print("together")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lays out memory as Linux does")
def test_code_and_its_constants_lie_together() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["together"], done.stderr
