"""The command of a net: seeds one after the other for some time."""

from __future__ import annotations

import argparse
import gc
import signal
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
    """Try seeds as the options say, or until Ctrl-C or SIGTERM; 1 when one of them has found something."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended says how far it came
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
        if (seed - options.seed) % 50 == 0:
            # Libraries stay loaded: the collector searched their objects in over half of the time.
            gc.collect()
            gc.freeze()
        seed += 1
    took, processor = time.monotonic() - start, time.process_time()
    print(f"{seed - options.seed} {what} from seed {options.seed} on, {failures} with a difference")
    print(f"{took:.0f} s, {processor:.0f} s of processor time; --seed {seed} continues")
    return failures > 0
