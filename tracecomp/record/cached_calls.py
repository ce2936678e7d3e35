"""Calls of functions with a cache (``functools.lru_cache``): what they compute does not matter while it is cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.eager.modes import unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.cached_results import CachedResults, caches_are_known
from tracecomp.record.guards.lookup import is_key
from tracecomp.record.guards.read_steps import Cached
from tracecomp.record.guards.snapshots import MISSING, short
from tracecomp.record.same_values import is_plain
from tracecomp.record.watching import Watching

StandIn = Callable[..., object]
"""Replacement of a cached function for one call."""


def cached_call(
    observer: Watching, callee: Any, args: Sequence[object], kwargs: Mapping[str, object]
) -> StandIn | None:
    """Record a call of a cached function, and return a replacement for this call, if it needs one.

    A missing entry is computed here, outside of the recording, so a tensor in the cache comes from outside. The
    program's own call would then count as a second one. Every call makes the function's call as an effect: it counts,
    and the entry is the most recent one.
    """
    if isinstance(callee, MethodType):
        args, callee = [callee.__self__, *args], callee.__func__
    given = [*args, *kwargs.values()]
    if any(map(_holds_tensor, given)):
        observer.recorder.refuse_here(f"looks up a tensor in the cache of {callee.__name__}", Section.STATE)
        return None
    if not caches_are_known():
        observer.recorder.refuse_here(f"calls {callee.__name__}, whose cache cannot be inspected", Section.STATE)
        return None
    if not all(is_plain(x) or id(x) in observer.known for x in given) or not all(map(is_key, given)):
        return None
    if callee.cache_info().currsize == callee.cache_parameters()["maxsize"]:
        observer.recorder.refuse_here(f"calls {callee.__name__}, whose cache is full", Section.STATE)
        return None
    held = CachedResults(callee)
    found = held.find(tuple(args), kwargs)
    stand_in: StandIn | None = None
    if found is MISSING:
        try:
            with unrecorded():
                found = callee(*args, **kwargs)
        except Exception as error:  # any exception of the program, which no cache keeps
            observer.recorder.refuse_here(f"calls {callee.__name__}, which has a cache and fails", Section.STATE)
            return partial(_raise, error)
        if isinstance(found, Tensor) and found.grad_fn is not None:
            observer.recorder.refuse_here(
                f"fills the cache of {callee.__name__} with a tensor that has a history", Section.STATE
            )
        stand_in = partial(_return, found)
    step = Cached((tuple(args), tuple(kwargs.items())), held)
    if id(callee) not in observer.made:
        where = f"what {getattr(callee, '__name__', short(callee))} gives"
        observer.step(observer.reads.root(callee, where), step, found, where)
        observer.changes.looked_up(partial(_count, callee, tuple(args), dict(kwargs)))
    return stand_in


def _count(callee: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    callee(*args, **kwargs)


def _return(result: object, *args: object, **kwargs: object) -> object:
    return result


def _raise(error: Exception, *args: object, **kwargs: object) -> None:
    raise error


def _holds_tensor(value: object) -> bool:
    return any(map(_holds_tensor, value)) if isinstance(value, tuple) else isinstance(value, Tensor)
