"""Memory growth of a process that repeats the same work: ``python -m benchmarks.memory_growth [WORK...]``.

For each window of repetitions it prints what the process holds: resident memory, memory allocated by the C library,
mapped machine code, and blocks allocated by Python. The slope is that of a least-squares line through all windows but
the first. A leak grows in every window. A single step is not a leak: caches and the C library fill up once.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

import tracecomp as tc
from tracecomp.base import config
from tracecomp.eager_kernels import background

Work = Callable[[int], Any]


@tc.compile(dynamic=False)
def _doubled(x: Any) -> Any:
    return x.sin() * 2 + 1


@tc.compile
def _branches(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x - 1


def shapes(number: int) -> None:
    """Record, compile and call a function for a new shape; its oldest recording is dropped."""
    for _ in range(2):
        _doubled(tc.ones(number % 97 + 100 * (number // 97 % 2) + 3, number // 194 + 2))


def functions(number: int) -> None:
    """Compile a new function, call it, and drop it."""
    compiled = tc.compile(lambda x: x.cos() * 3)
    for _ in range(2):
        compiled(tc.ones(7))


def recordings(number: int) -> None:
    """Record a new function without compiling it, and drop it."""
    tc.compile(lambda x: x.cos() * 3)(tc.ones(7))


def calls() -> Work:
    """Return what calls one compiled training step."""
    x = tc.ones(5000)
    weight: Any = tc.zeros(5000, requires_grad=True)

    @tc.compile
    def step(x: Any) -> Any:
        weight.grad = None
        (weight * x).sum().backward()
        with tc.no_grad():
            weight.sub_(weight.grad * 1e-3)
        return weight.sum()

    return lambda number: step(x)


def paths(number: int) -> None:
    """Take one of two recorded paths of a function, in turns."""
    _branches(tc.ones(4) * (-1) ** number)


WORKS: dict[str, Work] = {
    "shapes": shapes, "functions": functions, "recordings": recordings, "calls": calls(), "paths": paths,
}  # fmt: skip
REPETITIONS = {"shapes": 100, "functions": 100, "recordings": 200, "calls": 5000, "paths": 1000}
"""Per window. The first window of shapes holds more than a function keeps recordings."""
HELD = ("resident kB", "allocated kB", "code kB", "Python blocks")
Held = tuple[float, float, float, int]


_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class MallocState(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def malloc_state() -> Any:
    """Return the C library's account of its memory, as ``MallocState``; None if it is not glibc 2.33 or later."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = MallocState
    return ask()


def allocated() -> int:
    """Bytes that the C library has given out and not got back, in all threads; 0 where that is unknown."""
    state = malloc_state()
    return 0 if state is None else int(state.uordblks + state.hblkhd)


def resident() -> int:
    """Bytes of the process in memory; 0 where the system does not say so as Linux does."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def executable() -> int:
    """Bytes of machine code that no file backs; 0 where the system does not list mappings as Linux does."""
    try:
        with open("/proc/self/maps") as file:
            mappings = [line.split() for line in file]
    except OSError:
        return 0
    ranges = [fields[0].split("-") for fields in mappings if fields[1] == "r-xp" and len(fields) < 6]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def held() -> Held:
    """Return what the process holds, as ``HELD`` names it, once neither the collector nor a thread has work left."""
    background.finish()
    gc.collect()
    return resident() / 1e3, allocated() / 1e3, executable() / 1e3, sys.getallocatedblocks()


def windows(name: str, repetitions: int, number: int) -> list[Held]:
    """Return what the process holds after each of ``number`` windows of ``repetitions`` of a work."""
    work, turn, result = WORKS[name], count(), []
    for _ in range(number):
        for _ in range(repetitions):
            work(next(turn))
        result.append(held())
    return result


def slopes(rows: Sequence[Held], repetitions: int) -> list[float]:
    """Return the growth of each column per repetition: least squares, without the first window."""
    later = np.asarray(rows[1:], float)
    return [float(np.polyfit(np.arange(len(later)) * repetitions, column, 1)[0]) for column in later.T]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.memory_growth", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of: {', '.join(WORKS)} (default: all)")
    parser.add_argument("--windows", type=int, default=6, help="at least 3 (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the repetitions (default: %(default)s)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.works if name not in WORKS]:
        parser.error(f"no work {', '.join(unknown)}; there are: {', '.join(WORKS)}")
    if arguments.windows < 3:
        parser.error("--windows: a slope needs at least 3")
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        for name in arguments.works or WORKS:
            repetitions = max(1, round(REPETITIONS[name] * arguments.scale))
            rows = windows(name, repetitions, arguments.windows)
            print(f"{name}, {repetitions} repetitions a window")
            for label, column, slope in zip(HELD, zip(*rows, strict=True), slopes(rows, repetitions), strict=True):
                print(f"  {label:14}{' '.join(f'{value:10.0f}' for value in column)}  {slope:+.3f} a repetition")


if __name__ == "__main__":
    main()
