"""Memory of results that the C library would give back to the system is used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracecomp
from benchmarks.memory_growth import malloc_state
from tracecomp.eager_kernels import background

MANY = 9_000_000
BYTES = 4 * MANY
"""More than glibc takes from its heap: each result is a separate mapping."""
glibc = pytest.mark.skipif(malloc_state() is None, reason="other C libraries keep such memory themselves")


def mapped() -> int:
    """Bytes that the C library has mapped outside of its heap."""
    background.finish()  # work that other tests left to the background thread takes memory, too
    return int(malloc_state().hblkhd)


def add_one() -> tuple[Callable[[tracecomp.Tensor], tracecomp.Tensor], tracecomp.Tensor]:
    """A compiled function and its argument, when the memory of two of its results is kept."""
    scaled, x = tracecomp.compile(lambda t: t + 1), tracecomp.zeros(MANY)
    results = [scaled(x) for _ in range(4)]
    results.clear()
    return scaled, x


@pytest.mark.slow  # other threads of the process are in the account, too
@glibc
def test_a_loop_maps_and_unmaps_nothing() -> None:
    scaled, x = add_one()
    before = mapped()
    for _ in range(3):
        older = scaled(x)
        newer = scaled(x)
        assert mapped() == before
        del older, newer
        assert mapped() == before


@pytest.mark.slow  # other threads of the process are in the account, too
@glibc
def test_at_most_two_blocks_are_kept() -> None:
    scaled, x = add_one()
    results = [scaled(x) for _ in range(5)]
    before = mapped()
    results.clear()
    assert round((before - mapped()) / BYTES) == 3


def test_sizes_that_differ_do_not_mix() -> None:
    scaled = tracecomp.compile(lambda t: t + 1, dynamic=False)
    for extra in (0, 16, 0, 4096, 16, 0):
        assert (scaled(tracecomp.zeros(9_000_000 + extra))[-1] == 1).item()
