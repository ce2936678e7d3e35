"""Counting the calls of functions, so that those that are made often are served by machine code of their own.

A function that has been called with arguments of some types goes through one object from then on, a ``Warm``, which
runs it as it is written and looks at the arguments now and then. When they are alike twice, ``consider`` is told. It
may answer later with a builtin that serves such calls, and ends in the ``Warm`` again for all others. Both ways give
the same bits, so it does not matter when that happens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.modes import modes

EVERY = 16
"""So many calls go by from one look to the next. Looks that meet every shape of a loop have more compiled than helps:
generating text over 16 lengths then took 1.6 times as long after 400 steps."""
MANY = 256
"""How many kinds of calls of one function are told apart."""

Run: TypeAlias = Callable[..., Any]
Statics: TypeAlias = tuple[Any, ...]


class Warm:
    """The calls of a function with arguments of one ``signature``: types, and element types of tensors.

    ``tensors`` are the places of tensors among the arguments. ``served`` are builtins for the tensors alone, by the
    other arguments; ``tracked`` serves calls whose results have a history, ``turned`` those with operands that are not
    row-major, if they can. ``put`` takes what is to be called in the place of this object. ``primitive``: the function
    is one operator.
    ``signed``: other arguments of some calls hold zeros, so that equal ones may not be the same.
    """

    __slots__ = ("_left", "_put", "_seen", "primitive", "run", "served", "signed", "tensors", "tracked", "turned")

    def __init__(
        self, run: Run, signature: tuple[object, ...], put: Callable[[Run], None], primitive: bool = False
    ) -> None:
        self.run = run
        self.primitive = primitive
        self.tensors = tuple(i for i, kind in enumerate(signature) if isinstance(kind, np.dtype))
        self.served: dict[Statics, Run] = {}
        self.tracked: Run | None = None
        self.turned: Run | None = None
        self.signed = False
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
        if self.turned is not None:
            found = self.turned(args)
            if found is not None:
                return found
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
        told = [(type(t), a.shape, a.flags.c_contiguous or a.strides, t.requires_grad) for t, a in arrays]
        return (self.statics(args), modes.grad, len({id(t) for t, _ in arrays}), *told)

    def _look(self, args: tuple[object, ...]) -> None:
        statics = self.statics(args)
        if not self.tensors:
            return
        if any(map(has_zero, statics)):
            if any(map(has_negative_zero, statics)):
                return  # it would be taken for the other zero
            self._tell_zeros()
        kind = self.kind(args)
        if len(self._seen) >= MANY:
            self._seen.clear()
        self._seen[kind] += 1
        if self._seen[kind] == 2 and not consider(self, args):
            self._seen[kind] = 1

    def _tell_zeros(self) -> None:
        """From now on, before anything with a zero is served, calls with a negative one go by."""
        if not self.signed:
            self.signed = True
            if self.served or self.tracked is not None:
                self._put(self._chooser())

    def may_be_known(self, args: tuple[object, ...]) -> bool:
        """Whether what serves equal arguments serves these: not where one is a zero of the other sign."""
        return not (self.signed and any(map(has_negative_zero, self.statics(args))))

    def serve(self, statics: Statics, builtin: Run) -> None:
        """Have ``builtin`` called, on the tensors, where the other arguments are ``statics``."""
        if len(self.served) < MANY:
            self.served[statics] = builtin
            self._put(self._chooser())

    def serve_tracked(self, tracked: Run) -> None:
        """Have ``tracked`` called, on all arguments, before others: it gives None where it does not serve a call."""
        self.tracked = tracked
        self._put(self._chooser())

    def _chooser(self) -> Run:
        """What is called instead of this object."""
        tracked, without = self.tracked, self._without_history() if self.served else self
        if tracked is None:
            return without

        def choose(*args: object) -> Any:
            found = tracked(args)
            return without(*args) if found is None else found

        return choose

    def _without_history(self) -> Run:
        """What is called where results have no history, or not one that is served."""
        count, served = len(self.tensors), self.served
        if () in served:
            return served[()]
        if self.signed or self.tensors != tuple(range(count)):
            return self._anywhere

        def choose(*args: object) -> Any:
            found = served.get(args[count:])
            return self(*args) if found is None else found(*args[:count])

        return choose

    def _anywhere(self, *args: Any) -> Any:
        found = self.served.get(self.statics(args))
        return self(*args) if found is None or not self.may_be_known(args) else found(*[args[i] for i in self.tensors])


def has_zero(x: object, signs: tuple[float, ...] = (1.0, -1.0)) -> bool:
    """Whether this is a number with a zero of one of these signs, which equal ones may not have, or holds one."""
    if isinstance(x, tuple):
        return any(has_zero(part, signs) for part in x)
    if isinstance(x, complex | np.complexfloating):
        return has_zero(x.real, signs) or has_zero(x.imag, signs)
    return isinstance(x, float | np.floating) and x == 0.0 and math.copysign(1.0, x) in signs


def has_negative_zero(x: object) -> bool:
    """Whether this is a number with a negative zero, or holds one."""
    return has_zero(x, (-1.0,))


def _ignore(warm: Warm, args: tuple[object, ...]) -> bool:
    """Calls are not considered."""
    return True


consider: Callable[[Warm, tuple[Any, ...]], bool] = _ignore
"""Told of calls that are made often; set by what can make machine code of them. False: to be told again."""


def set_consider(fn: Callable[[Warm, tuple[Any, ...]], bool]) -> None:
    """Have ``fn`` told."""
    global consider
    consider = fn
