"""The command of a net: seeds one after the other for some time."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable


def by_command(doc: str, what: str, difference: Callable[[int], str | None]) -> int:
    """Try seeds as the options say; 1 when one of them has found something."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start, seed, failures = time.monotonic(), options.seed, 0
    while seed < options.seed + options.count and time.monotonic() < start + 60 * options.minutes:
        try:
            found = difference(seed)
        except Exception:
            found = f"seed {seed}: {traceback.format_exc()}"
        if found is not None:
            failures += 1
            print(found, flush=True)
        seed += 1
    took = time.monotonic() - start
    print(f"{seed - options.seed} {what} from seed {options.seed} on, {failures} with a difference, {took:.0f} s")
    return failures > 0
