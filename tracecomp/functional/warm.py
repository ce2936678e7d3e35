"""Counting the calls of functions, so that those that are made often are served by machine code of their own.

A function that has been called with arguments of some types goes through one object from then on, a ``Warm``, which
runs it as it is written and looks at the arguments now and then. When they are alike twice, ``consider`` is told. It
may answer later with a builtin that serves such calls, and ends in the ``Warm`` again for all others. Both ways give
the same bits, so it does not matter when that happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.modes import modes

EVERY = 16
"""So many calls go by from one look to the next."""
MANY = 256
"""How many kinds of calls of one function are told apart."""

Run: TypeAlias = Callable[..., Any]
Statics: TypeAlias = tuple[Any, ...]


class Warm:
    """The calls of a function with arguments of one ``signature``: types, and element types of tensors.

    ``tensors`` are the places of tensors among the arguments. ``served`` are builtins for the tensors alone, by the
    other arguments. ``put`` takes what is to be called in the place of this object.
    """

    __slots__ = ("_left", "_put", "_seen", "run", "served", "tensors")

    def __init__(self, run: Run, signature: tuple[object, ...], put: Callable[[Run], None]) -> None:
        self.run = run
        self.tensors = tuple(i for i, kind in enumerate(signature) if isinstance(kind, np.dtype))
        self.served: dict[Statics, Run] = {}
        self._put = put
        self._left = EVERY
        self._seen: Counter[Any] = Counter()

    def __call__(self, *args: Any) -> Any:
        if modes.recorder is not None:  # numbers among the arguments may be followed, and are not to be looked at
            return self.run(*args)
        self._left -= 1
        if self._left <= 0:
            self._left = EVERY
            self._look(args)
        return self.run(*args)

    def statics(self, args: tuple[object, ...]) -> Statics:
        """The arguments that are no tensors."""
        return tuple([x for i, x in enumerate(args) if i not in self.tensors])

    def with_statics(self, statics: Statics, tensors: tuple[object, ...]) -> list[Any]:
        """All arguments."""
        given, rest = iter(tensors), iter(statics)
        return [next(given if i in self.tensors else rest) for i in range(len(tensors) + len(statics))]

    def kind(self, args: tuple[Any, ...]) -> Any:
        """What tells calls apart."""
        arrays = [(args[i], args[i]._data) for i in self.tensors]
        told = [(type(t), a.shape, a.flags.c_contiguous, t.requires_grad) for t, a in arrays]
        return (self.statics(args), modes.grad, len({id(t) for t, _ in arrays}), *told)

    def _look(self, args: tuple[object, ...]) -> None:
        statics = self.statics(args)
        if not self.tensors or any(isinstance(x, float) and x == 0.0 for x in statics):
            return  # zeros of either sign are equal, and not the same
        kind = self.kind(args)
        if len(self._seen) >= MANY:
            self._seen.clear()
        self._seen[kind] += 1
        if self._seen[kind] == 2:
            consider(self, args)

    def serve(self, statics: Statics, builtin: Run) -> None:
        """Have ``builtin`` called, on the tensors, where the other arguments are ``statics``."""
        if len(self.served) < MANY:
            self.served[statics] = builtin
            self._put(self._chooser())

    def _chooser(self) -> Run:
        """What is called instead of this object."""
        count, served = len(self.tensors), self.served
        if () in served:
            return served[()]
        if self.tensors != tuple(range(count)):
            return self._anywhere

        def choose(*args: Any) -> Any:
            found = served.get(args[count:])
            return self(*args) if found is None else found(*args[:count])

        return choose

    def _anywhere(self, *args: Any) -> Any:
        found = self.served.get(self.statics(args))
        return self(*args) if found is None else found(*[args[i] for i in self.tensors])


def _ignore(warm: Warm, args: tuple[object, ...]) -> None:
    """Calls are not considered."""


consider: Callable[[Warm, tuple[Any, ...]], None] = _ignore
"""Told of calls that are made often; set by what can make machine code of them."""


def set_consider(fn: Callable[[Warm, tuple[Any, ...]], None]) -> None:
    """Have ``fn`` told."""
    global consider
    consider = fn
