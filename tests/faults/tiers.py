"""How many planted faults the default test run catches: ``python -m tests.faults.tiers --kind fault --count 20``.

Each fault is planted in a separate run (``plugin.py``), which stops at the first failed test. If the default run does
not catch a fault, the tests marked ``slow`` run, too.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

from tests.faults.plugin import FAULTS_OF_THE_PACKAGE, describe, mutants

COMMAND = (
    "-m", "pytest", "-q", "-x", "-n", "auto", "-p", "no:cacheprovider", "-p", "tests.faults.plugin",
    "--ignore=tests/faults", "--ignore=tests/fuzz/test_identities.py",
)  # fmt: skip
PASSED, FAILED, INTERRUPTED, USAGE = 0, 1, 2, 4


class NotPlanted(Exception):
    """The mutated module cannot be imported, so the mutant is not a fault."""


def catches(name: str, marks: str) -> bool:
    """Whether a run of the tests with these marks fails with the fault planted."""
    command = [sys.executable, *COMMAND, "--plant", name, "-m", marks]
    # Machine code that an earlier run stored for the same graph would hide a fault of passes and code generation.
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRACECOMP_CACHE_DIR": cache}
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode == USAGE and "could not be planted" in run.stderr:
        raise NotPlanted
    if run.returncode not in (PASSED, FAILED, INTERRUPTED):
        raise RuntimeError(f"{name}: the run did not start:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode != PASSED


def main() -> int:
    """Try faults and print a line for each, then the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("fault", "mutant"), default="fault")
    parser.add_argument("--count", type=int, default=20, help="how many faults (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default 0)")
    parser.add_argument("--default-only", action="store_true", help="do not run the slow tests after the default ones")
    parser.add_argument("--skip", type=int, default=0, help="how many of the sample to skip, to continue a run")
    options = parser.parse_args()
    total = len(FAULTS_OF_THE_PACKAGE) if options.kind == "fault" else len(mutants())
    chosen = random.Random(options.seed).sample(range(total), total)[options.skip :]
    tally = {"default": 0, "slow": 0, "neither": 0}
    for number in chosen:
        if sum(tally.values()) == options.count:
            break
        name, begin = f"{options.kind}:{number}", time.monotonic()
        try:
            if catches(name, "not slow"):
                by = "default"
            elif not options.default_only and catches(name, "slow"):
                by = "slow"
            else:
                by = "neither"
        except NotPlanted:
            print(f"not planted     {name}  {describe(name)[:120]}", flush=True)
            continue
        tally[by] += 1
        print(f"{by:8} {time.monotonic() - begin:4.0f} s  {name}  {describe(name)[:120]}", flush=True)
    print(", ".join(f"{count} {by}" for by, count in tally.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
