"""Run random programs for some time: ``python -m tests.fuzz --minutes 60 --seed 0``."""

from __future__ import annotations

import argparse
import time
import traceback

from tests.fuzz.checking import WAYS, check, refusals, shrink
from tests.fuzz.programs import generate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--ways", default=",".join(("torch", *WAYS)))
    parser.add_argument("--failures", type=int, default=10)
    options = parser.parse_args()
    ways = tuple(options.ways.split(","))
    end, seed, failures = time.monotonic() + 60 * options.minutes, options.seed, 0
    while time.monotonic() < end and seed < options.seed + options.count and failures < options.failures:
        p = generate(seed)
        try:
            found = check(p, ways)
            if found is not None:
                p, found = shrink(p, ways)
        except Exception:
            found = traceback.format_exc()
        if found is not None:
            failures += 1
            print(f"seed {seed}: {found}\n    {p}", flush=True)
        seed += 1
    for why, count in refusals.most_common():
        print(f"refused {count} times: {why}")
    print(f"{seed - options.seed} programs from seed {options.seed} on, {failures} with a difference")
    return failures > 0


if __name__ == "__main__":
    raise SystemExit(main())
