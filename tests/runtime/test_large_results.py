"""Memory of results that the C library would give back to the system is used again."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

import tracecomp

pytestmark = pytest.mark.slow  # measures memory or time: by chance red beside other work

resource = pytest.importorskip("resource")

MANY = 10_000_000
linux = pytest.mark.skipif(not Path("/proc").exists(), reason="other C libraries keep such memory themselves")


def new_pages(call: Callable[[], None]) -> int:
    before: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    after: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return after - before


@linux
def test_a_loop_needs_no_new_pages() -> None:
    scaled = tracecomp.compile(lambda t: t * 2 + 1)
    x = tracecomp.zeros(MANY)
    held = [scaled(x) for _ in range(4)][-1]

    def loop() -> None:
        nonlocal held
        for _ in range(10):
            held = scaled(x)

    assert new_pages(loop) < 1000
    assert (held == 1).all()


@linux
def test_at_most_two_blocks_are_kept() -> None:
    scaled = tracecomp.compile(lambda t: t + 1)
    x = tracecomp.zeros(MANY)
    scaled(x)
    results = [scaled(x) for _ in range(5)]
    resident = Path("/proc/self/statm")

    def pages() -> int:
        return int(resident.read_text().split()[1]) * mmap.PAGESIZE

    before = pages()
    results.clear()
    assert before - pages() > 2.5 * MANY * 4


def test_sizes_that_differ_do_not_mix() -> None:
    scaled = tracecomp.compile(lambda t: t + 1, dynamic=False)
    for extra in (0, 16, 0, 4096, 16, 0):
        assert (scaled(tracecomp.zeros(9_000_000 + extra))[-1] == 1).item()
