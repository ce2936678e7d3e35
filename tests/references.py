"""References for tests of values, which no generated code computes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from tracecomp.inspect.eager_check import numpy_alone

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def numpy_reference() -> Iterator[None]:
    """Run eager operators of this thread by their numpy definitions alone.

    Eager mode runs native kernels, which share generators with compiled programs: a fault in these changes both alike.
    The setting alone is not enough, because a function that was called often is already served by machine code.
    Watched calls go past that.
    """
    with numpy_alone():
        yield


def by_numpy(fn: Callable[P, R]) -> Callable[P, R]:
    """Return ``fn`` whose calls run in a ``numpy_reference()`` block."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with numpy_reference():
            return fn(*args, **kwargs)

    return call
