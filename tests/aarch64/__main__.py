"""``python -m tests.aarch64 PYTHON`` compares this processor with the one on which the interpreter PYTHON runs.

PYTHON may be a script that starts an emulator, and needs numpy, llvmlite, networkx and ml_dtypes; ``tests`` needs the
``test`` extra. The parts are: digests of programs, saved files in both directions, the demo, and a selection of the
tests. One process runs at a time. With no difference and no failure the command returns 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SELECTION = (
    "tests/test_smoke.py", "tests/ir/test_conversions.py", "tests/ir/test_special.py", "tests/runtime/test_threads.py",
    "tests/runtime/test_object_cache.py", "tests/runtime/test_library.py", "tests/passes/cost",
    "tests/compiled/test_aarch64_files.py", "tests/compiled/test_native_call.py", "tests/compiled/test_training.py",
    "tests/record/guards/test_guards.py", "tests/codegen/kernels/test_kernels.py", "tests/passes/test_bits.py",
)  # fmt: skip
"""Tests of what processors do differently: conversions, functions, threads, code in memory, native calls, guards."""
START = "import runpy, sys; sys.executable = sys.argv.pop(1); sys.argv[0] = sys.argv[1]; del sys.argv[1]; "
"""An emulated interpreter does not know the script that starts it, with which tests start further processes."""


class Interpreter:
    """Runs modules of this checkout. Both interpreters share a cache: neither may take the other's machine code."""

    def __init__(self, python: str, cache: Path) -> None:
        self.python, self.cache = python, cache

    def run(self, module: str, *args: str, quiet: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``python -m module args``."""
        code = START + "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRACECOMP_CACHE_DIR": str(self.cache)}
        command = [self.python, "-W", "ignore", "-c", code, self.python, module, *args]
        return subprocess.run(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE if quiet else None)


def compare_digests(here: Interpreter, there: Interpreter, names: Sequence[str]) -> bool:
    """Print the programs whose digests differ, or which have several."""
    mine, other = ({*r.run("tests.aarch64.programs", *names).stdout.splitlines()} for r in (here, there))
    several = {line for line in mine | other if " " in line.rpartition(": ")[2]}
    for line in sorted((mine ^ other) | several):
        print(f"  {'here ' if line in mine else 'there'} {line}")
    print(f"digests: {len(mine)} programs here, {len(other)} there, {len(mine & other)} equal")
    return bool(mine) and mine == other and not several


def exchange_files(here: Interpreter, there: Interpreter, folder: Path) -> bool:
    """Save files on each side, and load them on the other."""
    fine = True
    for saver, loader, way in ((here, there, "from here to there"), (there, here, "from there to here")):
        exchanged = folder / way
        exchanged.mkdir()
        done = saver.run("tests.aarch64.files", "save", str(exchanged)).returncode
        said = loader.run("tests.aarch64.files", "load", str(exchanged)).stdout if done == 0 else ""
        print(f"files {way}:", *said.splitlines(), sep="\n  ")
        fine &= bool(said) and "OTHER BITS" not in said and said.count("the same bits") == 4
    return fine


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64", description=__doc__)
    parser.add_argument("python", metavar="PYTHON", help="an interpreter on the other processor")
    parser.add_argument("parts", nargs="*", metavar="PART", help="digests, files, demo or tests; default: all")
    given = parser.parse_args(args)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here, there = (Interpreter(python, folder / "cache") for python in (sys.executable, given.python))
        parts: dict[str, Callable[[], bool]] = {
            "digests": lambda: compare_digests(here, there, []),
            "files": lambda: exchange_files(here, there, folder),
            "demo": lambda: there.run("tracecomp", "demo", quiet=False).returncode == 0,
            "tests": lambda: there.run("pytest", "-q", "-o", "timeout=0", *SELECTION, quiet=False).returncode == 0,
        }
        failed = []
        for part in given.parts or parts:
            start = time.perf_counter()
            if not parts[part]():
                failed.append(part)
            print(f"{part}: {'FAILED' if part in failed else 'passed'}, {(time.perf_counter() - start) / 60:.1f} min")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
