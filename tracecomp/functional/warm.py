"""Call counters of functions: frequent calls are served by specialized machine code.

After a call with arguments of some types, all such calls pass through one object, a ``Warm``. It runs the function and
inspects the arguments from time to time. When they match twice, it calls ``consider``. ``consider`` may later install a
builtin for such calls, which passes all others back to the ``Warm``. Both paths give the same bits, so the time of the
switch does not matter.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.modes import modes

EVERY = 16
"""Calls between two inspections. Inspections that meet every shape of a loop compile more than helps: generating text
over 16 lengths then took 1.6 times as long after 400 steps."""
_FIRST = EVERY // 2
"""Calls before the first inspection, and between the first and the second: they rarely meet a change of shapes."""
_MOST_NEW = 8
"""New kinds of calls in a row after which the calls inside are counted too."""
MANY = 256
"""Most kinds of calls of one function that are counted."""

Run: TypeAlias = Callable[..., Any]
Statics: TypeAlias = tuple[Any, ...]


class Warm:
    """Calls of a function with arguments of one ``signature``: types, and element types of tensors.

    ``tensors`` are the positions of tensors among the arguments. ``served`` are builtins for the tensors alone, by the
    other arguments. ``tracked`` serves calls whose results have a history, ``turned`` those with operands that are not
    row-major, if they can. ``put`` replaces this object as the callee. ``primitive``: the function is a single
    operator. ``signed``: other arguments of some calls contain zeros, so equality is not identity. ``is_open``: it is
    not compiled as a whole, so calls inside it are counted. ``seconds``: the time of the last inspected call.

    Calls with numbers that a recording follows are never served: to look one up is to read the number, which would hold
    the recording to its value.
    """

    __slots__ = (
        "_left",
        "_never",
        "_new",
        "_put",
        "_seen",
        "_turn",
        "is_open",
        "primitive",
        "run",
        "seconds",
        "served",
        "signed",
        "tensors",
        "tracked",
        "turned",
    )  # fmt: skip

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
        self._never = not self.tensors or any(hasattr(kind, "__tracecomp_tensor__") for kind in signature)
        self.is_open = self._never
        self._put = put
        self.seconds = 0.0
        self._left = _FIRST
        self._turn = 0
        self._new = 0
        self._seen: Counter[Any] = Counter()

    def __call__(self, *args: Any) -> Any:
        recorder = modes.recorder
        if recorder is not None:  # numbers among the arguments may be dynamic, and must not be read
            return recorder.unobserved(self.run, *args)
        if modes.counted:  # the call around this one is compiled as a whole
            return self._run(args)
        self._left -= 1
        if self._left > 0:
            return self._outermost(args)
        self._left = self._pause() if self._seen else _FIRST
        self._look(args)
        begin = time.perf_counter()
        try:
            return self._outermost(args)
        finally:
            self.seconds = time.perf_counter() - begin

    def _pause(self) -> int:
        """Calls until the next inspection: they vary, so that a loop does not keep pace with them."""
        self._turn = (75 * self._turn + 74) % 65537  # a sequence that meets every number but one
        return EVERY // 2 + self._turn % EVERY

    def _outermost(self, args: tuple[Any, ...]) -> Any:
        if self.is_open or self._new >= _MOST_NEW:
            return self._run(args)
        modes.counted = True
        try:
            return self._run(args)
        finally:
            modes.counted = False

    def _run(self, args: tuple[Any, ...]) -> Any:
        if self.turned is not None:
            found = self.turned(args)
            if found is not None:
                return found
        return self.run(*args)

    def statics(self, args: tuple[object, ...]) -> Statics:
        """The non-tensor arguments."""
        return tuple([x for i, x in enumerate(args) if i not in self.tensors])

    def with_statics(self, statics: Statics, tensors: tuple[object, ...]) -> list[Any]:
        """The arguments with ``statics`` inserted."""
        given, rest = iter(tensors), iter(statics)
        return [next(given if i in self.tensors else rest) for i in range(len(tensors) + len(statics))]

    def kind(self, args: tuple[Any, ...]) -> Any:
        """The key of a call's kind."""
        arrays = [(args[i], args[i]._data) for i in self.tensors]
        told = [(type(t), a.shape, a.flags.c_contiguous or a.strides, t.requires_grad) for t, a in arrays]
        return (self.statics(args), modes.grad, modes.inference, len({id(t) for t, _ in arrays}), *told)

    def _look(self, args: tuple[object, ...]) -> None:
        if self._never:
            return
        statics = self.statics(args)
        if any(map(has_zero, statics)):
            if any(map(has_negative_zero, statics)):
                return  # it would match the zero of the other sign
            self._tell_zeros()
        kind = self.kind(args)
        if len(self._seen) >= MANY:
            self._seen.clear()
        self._seen[kind] += 1
        self._new = self._new + 1 if self._seen[kind] == 1 else 0
        if self._seen[kind] == 2 and not consider(self, args, partial(self._again, kind)):
            self._again(kind)

    def _again(self, kind: Any) -> None:
        """Have the next call of this kind considered."""
        self._seen[kind] = 1

    def _tell_zeros(self) -> None:
        """From now on, calls with a negative zero bypass the builtins, before any with a zero is served."""
        if not self.signed:
            self.signed = True
            if self.served or self.tracked is not None:
                self._put(self._chooser())

    def may_be_known(self, args: tuple[object, ...]) -> bool:
        """Whether a builtin for equal arguments is valid for these: zeros must have the same sign."""
        return not (self.signed and any(map(has_negative_zero, self.statics(args))))

    def serve(self, statics: Statics, builtin: Run) -> None:
        """Call ``builtin`` on the tensors if the other arguments are ``statics``."""
        if len(self.served) < MANY:
            self.served[statics] = builtin
            self._put(self._chooser())

    def serve_tracked(self, tracked: Run) -> None:
        """Call ``tracked`` first, on all arguments: it returns None for calls that it does not serve."""
        self.tracked = tracked
        self._put(self._chooser())

    def _chooser(self) -> Run:
        """The function that is called instead of this object."""
        tracked, without = self.tracked, self._without_history() if self.served else self
        if tracked is None:
            return without

        def choose(*args: object) -> Any:
            found = tracked(args)
            return without(*args) if found is None else found

        return choose

    def _without_history(self) -> Run:
        """The function for calls whose results have no history, or one that is not served."""
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
    """Whether this is, or contains, a zero of one of these signs, for which equal numbers may differ."""
    if isinstance(x, tuple):
        return any(has_zero(part, signs) for part in x)
    if isinstance(x, complex | np.complexfloating):
        return has_zero(x.real, signs) or has_zero(x.imag, signs)
    return isinstance(x, float | np.floating) and x == 0.0 and math.copysign(1.0, x) in signs


def has_negative_zero(x: object) -> bool:
    """Whether this is, or contains, a negative zero."""
    return has_zero(x, (-1.0,))


def _ignore(warm: Warm, args: tuple[object, ...], again: Callable[[], None]) -> bool:
    """Ignore a frequent call."""
    return True


Consider: TypeAlias = Callable[[Warm, tuple[Any, ...], Callable[[], None]], bool]
consider: Consider = _ignore
"""Called for frequent calls; set by the module that compiles them. False, or a later call of ``again``: consider the
next such call."""


def set_consider(fn: Consider) -> None:
    """Set the function that is called for frequent calls."""
    global consider
    consider = fn
