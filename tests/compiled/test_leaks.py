"""Recordings that are dropped, and calls, leave nothing behind: memory as the system counts it, code included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # measures memory or time: by chance red beside other work

PROGRAM = """
import gc, sys
import tracecomp as tc

@tc.compile(dynamic=False)
def shapes(x):
    return x.sin() * 2 + 1

@tc.compile
def paths(x):
    return x * 2 if x.sum() > 0 else x - 1

weight = tc.zeros(5000, requires_grad=True)

@tc.compile
def step(x):
    weight.grad = None
    (weight * x).sum().backward()
    with tc.no_grad():
        weight.sub_(weight.grad * 1e-3)
    return weight.sum()

x = tc.ones(5000)

def work(kind, n):
    if kind == "shapes":  # each is recorded, compiled and in the end dropped for another
        for _ in range(2):
            shapes(tc.ones(n % 97 + 100 * (n // 97 % 2) + 3, n // 194 + 2))
    elif kind == "functions":
        made = tc.compile(lambda x: x.cos() * 3)
        for _ in range(2):
            made(tc.ones(7))
    elif kind == "recordings":
        tc.compile(lambda x: x.cos() * 3)(tc.ones(7))
    elif kind == "calls":
        step(x)
    elif kind == "paths":
        paths(tc.ones(4) * (-1) ** n)

def kilobytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

kind, count = sys.argv[1], int(sys.argv[2])
for n in range(count // 2):
    work(kind, n)
before = kilobytes()
for n in range(count // 2, count):
    work(kind, n)
print(kilobytes() - before)
"""

COUNTS = {"shapes": 600, "functions": 300, "recordings": 400, "calls": 20_000, "paths": 2000}


def growth(kind: str, count: int, cache: Path) -> int:
    """Kilobytes by which a process grows in the second half of so many repetitions, all of them compiled anew."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(count)], capture_output=True, text=True, check=True, timeout=3000,
        env={**os.environ, "TRACECOMP_CACHE_DIR": str(cache)},
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of memory")
@pytest.mark.parametrize("kind", COUNTS)
def test_memory_is_flat(kind: str, tmp_path: Path) -> None:
    assert growth(kind, COUNTS[kind], tmp_path) < 1000
