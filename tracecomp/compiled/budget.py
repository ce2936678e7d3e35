"""A limit on the cost of recording and compiling one function: at most the time that its calls can have saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

FREE = 8
"""Recordings and programs of a function before their cost matters: few can tell how often each will be used."""
clock = time.perf_counter
"""Gives the seconds. Results are the same whatever it says."""


class Budget:
    """Seconds ``spent`` on recording and compiling, and calls ``served`` by the results.

    A served call saves at most the time of an eager one. So more is made only while
    ``spent <= served * eager``: then the total is at most twice that of eager calls, beyond the first ``FREE``.
    ``closed``: nothing more is made but what eager calls have paid for (``Rent``).
    Both are the rent-or-buy rule (Karlin et al. 1988, "Competitive snoopy caching").
    """

    def __init__(self) -> None:
        self.spent = 0.0
        self.made = 0
        self.served = 0
        self.declined = 0
        self.closed = False
        self._eager = 0.0

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of the block as the cost of one recording or program."""
        start = clock()
        try:
            yield
        finally:
            self.spent += clock() - start
            self.made += 1

    def allows(self) -> bool:
        """Whether another recording or program may be made. The first refusal measures an eager call."""
        won = self.served * self._eager / max(self.declined, 1)
        return not self.closed and (self.made < FREE or self.spent <= won)

    def eagerly(
        self, fn: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object], rent: Rent
    ) -> Any:
        """Make a call that is not recorded or compiled, and count its time as ``rent``."""
        start = clock()
        result = fn(*args, **kwargs)
        seconds = clock() - start
        self._eager += seconds
        self.declined += 1
        rent.paid += seconds
        return result

    def buys(self, rent: Rent, served: int) -> bool:
        """Whether to make another recording or program; ``served`` counts the calls of those before."""
        price = self.spent / max(self.made, 1)
        if rent.paid < rent.times * price:
            return False
        won = (served - rent.served) * self._eager / max(self.declined, 1)
        rent.times = 1 if won >= price else 2 * rent.times
        rent.paid, rent.served = 0.0, served
        return True

    def says(self) -> str:
        """Return a text with the seconds spent and the number of recordings and programs."""
        return f"{self.spent:.1f} s on {self.made} recordings and programs"


@dataclass
class Rent:
    """Seconds ``paid`` for eager calls, which another recording or program would serve if calls stayed as they are.

    It is made when they are as many as one takes, or that many ``times``: twice as many after each that has not saved
    its cost. ``served``: the calls served when the last one was made.
    """

    paid: float = 0.0
    times: int = 1
    served: int = 0


class Unlimited(Budget):
    """No limit: a comparison wants every call compiled that could be, whether that pays or not."""

    def allows(self) -> bool:
        """True."""
        return True
