"""Functions whose results are views of their only tensor: the view operators are found once and cached.

The shape and strides of the tensor and the other arguments determine the views. The first call with given arguments
runs the function; its result shows the view operators. Later calls apply these without the function, like ``x[1:3]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, look_through
from tracecomp.eager.tensor_base import View, base_of

MANY = 1024
"""Most cached sequences of views per function."""

Way: TypeAlias = tuple[tuple[View, ...], str | None]
"""The operators from a tensor to its view, and the error for writes to one of several views."""


class Viewed:
    """Calls of ``run`` with a tensor and other arguments of some types."""

    __slots__ = ("_ways", "run")

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self._ways: dict[tuple[Any, ...], tuple[bool, list[Way]]] = {}

    def __call__(self, t: Tensor, *rest: Any) -> Any:
        if modes.recorder is not None or use.begun:
            return self.run(t, *rest)
        array = t._data
        key = (array.shape, array.strides, rest)
        found = self._ways.get(key)
        if found is None:
            return self._find(key, t, rest)
        several, ways = found
        if not several:
            return look_through(t, ways[0][0])
        views = []
        for steps, unwritable in ways:
            view = look_through(t, steps)
            if unwritable is not None:
                view._unwritable = unwritable
            views.append(view)
        return tuple(views)

    def _find(self, key: tuple[object, ...], t: Tensor, rest: tuple[object, ...]) -> Any:
        result = self.run(t, *rest)
        several = type(result) is tuple
        if several and _is_told_apart(t):
            return result
        ways = [_way(t, view) for view in (result if several else (result,))]
        known = [way for way in ways if way is not None]
        if ways and len(known) == len(ways):
            if len(self._ways) >= MANY:
                self._ways.clear()
            self._ways[key] = several, known
        return result


def _way(t: Tensor, view: object) -> Way | None:
    """Return the operators from ``t`` to ``view``; None if it has other memory, or a history of another kind."""
    if view is t:
        return (), None
    if not isinstance(view, Tensor) or not view._linked or not view._data.size:
        return None
    base, behind = (base_of(t), len(t._chain)) if t._linked else (t, 0)
    steps = view._chain[behind:]
    if base_of(view) is not base or any(op.vjp is None for op, _ in steps):
        return None
    return steps, view._unwritable if _is_told_apart(view) else None


def _is_told_apart(t: Tensor) -> bool:
    """Whether writes to ``t`` are forbidden by a function with several views, not by a mode."""
    return t._unwritable is not None and t._unwritable.startswith("Output")
