"""The command of a net: seeds one after the other for some time."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterable
from typing import TypeVar

P = TypeVar("P")


def smallest(p: P, check: Callable[[P], str | None], smaller: Callable[[P], Iterable[P]]) -> tuple[P, str | None]:
    """Return the smallest program reduced from ``p`` with a difference by ``check``, and the difference."""
    found = check(p)
    going = found is not None
    while going:
        going = False
        for q in smaller(p):
            said = check(q)
            if said is not None:
                p, found, going = q, said, True
                break
    return p, found


def by_command(doc: str, what: str, difference: Callable[[int], str | None]) -> int:
    """Try seeds as the options say, or until Ctrl-C; 1 when one of them has found something."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start, seed, failures = time.monotonic(), options.seed, 0
    while seed < options.seed + options.count and time.monotonic() < start + 60 * options.minutes:
        try:
            found = difference(seed)
        except KeyboardInterrupt:
            break
        except Exception:
            found = f"seed {seed}: {traceback.format_exc()}"
        if found is not None:
            failures += 1
            print(found, flush=True)
        seed += 1
    took = time.monotonic() - start
    print(f"{seed - options.seed} {what} from seed {options.seed} on, {failures} with a difference, {took:.0f} s")
    return failures > 0
