"""Repeat short checks of the suite many times: ``python -m tests.fuzz.faults kills 1000`` (see docs/testing.md)."""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tracecomp as tc
from benchmarks import memory_growth
from tests.base import test_interrupts
from tests.compiled import test_program_files
from tests.onnx import test_module
from tests.runtime import test_object_cache
from tests.serialization import test_hostile
from tracecomp.base import config


def entries(count: int, seed: int) -> str:
    """Damaged entries of the cache."""
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        different = test_object_cache.damage_entries(Path(folder), count, seed)
    return f"{different} damaged entries, none returned"


def kills(count: int, seed: int) -> str:
    """Processes killed while they write to the cache, sixteen at once."""
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        test_object_cache.kill_writers(Path(folder), count, 16, seed)
    return f"{count} kills, every entry whole or none"


def files(count: int, seed: int) -> str:
    """Damaged files of ``save`` and of safetensors."""
    kinds = (test_hostile.fuzz_pickles, test_hostile.fuzz_archives, test_hostile.fuzz_safetensors)
    refused = [fuzz(count // 3, seed) for fuzz in kinds]
    return f"{refused} of {count // 3} damaged pickles, archives and safetensors refused, by documented errors alone"


def artefacts(count: int, seed: int) -> str:
    """Damaged files of programs as graphs, whose digests are those of what they hold."""
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder), bounded():
        return f"{dict(test_program_files.damage_graph_files(Path(folder), count, seed))} of damaged files of graphs"


def models(count: int, seed: int) -> str:
    """Damaged ONNX models."""
    with bounded():
        return f"{dict(test_module.damage_models(count, seed))} of damaged ONNX models"


LOADER = """
import pickle, resource, sys, time
import tracecomp
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    tracecomp.load(sys.argv[1])
except pickle.UnpicklingError:
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, time.process_time() - start)
"""


def bombs(count: int, seed: int) -> str:
    """Files that would take much memory or time: what the worst of them took."""
    megabytes, seconds = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bomb")
        for make in test_hostile.BOMBS.values():
            path.write_bytes(make())
            for _ in range(count):
                command = [sys.executable, "-c", LOADER, str(path)]
                taken = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                megabytes, seconds = max(megabytes, int(taken[0])), max(seconds, float(taken[1]))
    return f"{len(test_hostile.BOMBS)} bombs, {count} times: at most {megabytes} MB and {seconds:.1f} s"


@contextmanager
def bounded() -> Iterator[None]:
    """A limit on the process: what asks for 2 GB more than it has is a MemoryError, which nothing expects."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * 2**30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def interrupts(count: int, seed: int) -> str:
    """Moments of Ctrl-C in training, eager and compiled, by SGD and AdamW."""
    signal.signal(signal.SIGALRM, test_interrupts.interrupt)
    tc.compile(lambda x: x + 1)(tc.ones(1))
    states = [
        test_interrupts.interrupt_training(kind, compiled, count // 4, seed)
        for kind in ("SGD", "AdamW") for compiled in (True, False)
    ]  # fmt: skip
    return f"{count} interrupts, {sum(states)} different states, each whole"


def leaks(count: int, seed: int) -> str:
    """Slopes of resident memory over recordings that are dropped, compiled shapes, and calls."""
    works = {"recordings": count // 6, "shapes": count // 30, "calls": 20 * count // 6}
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        rows = {name: memory_growth.windows(name, max(1, number), 6) for name, number in works.items()}
    slopes = [f"{name} {memory_growth.slopes(rows[name], max(1, works[name]))[0]:+.3f}" for name in works]
    return f"kB of resident memory per repetition: {', '.join(slopes)}"


SWEEPS: dict[str, Callable[[int, int], str]] = {
    f.__name__: f
    for f in (
        entries,
        kills,
        files,
        bombs,
        artefacts,
        models,
        interrupts,
        leaks,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=SWEEPS)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    options = parser.parse_args()
    start = time.monotonic()
    print(f"{SWEEPS[options.what](options.count, options.seed)}, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
