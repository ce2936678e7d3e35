"""Modules and optimizers whose calls repeat compile themselves, if the program asks for it.

Results and their bits are those of eager calls, so only the time tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakKeyDictionary

from tracecomp.base import config
from tracecomp.base.lazy_names import load_module
from tracecomp.eager.modes import modes

AFTER = 3
"""The call that is recorded: programs that make one or two do not pay for it."""


class _Switch:
    """Whether calls of modules and steps of optimizers are counted."""

    on = config.current().jit


switch = _Switch()
Run: TypeAlias = Callable[..., object]
_calls: WeakKeyDictionary[object, int] = WeakKeyDictionary()
_compiled: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def jit(enabled: bool = True) -> None:
    """Compile modules and optimizers from now on when their calls repeat, or do not, in all threads.

    These are calls of modules that are not part of a larger one's call, and ``step()`` of optimizers. The third call
    is recorded; later ones run a program once another process has compiled it. A call that one graph cannot hold stays
    eager, without a warning (TRACECOMP_LOG=breaks shows why). ``jit(False)`` also makes such modules eager again, but
    not those of ``compile``. TRACECOMP_JIT=1 is ``jit(True)`` at the start.
    """
    switch.on = enabled
    if not enabled:
        for owner in list(_compiled):
            forget(owner)
        _calls.clear()


def forget(owner: object) -> None:
    """Make ``owner`` eager if it has compiled itself, because the program compiles it, or wants it eager."""
    attribute = None if type(owner).__hash__ is None else _compiled.pop(owner, None)
    if attribute is not None:
        vars(owner).pop(attribute, None)


def counts(owner: object) -> bool:
    """Whether to count a call of ``owner``: not inside a counted call, and not while a recorder is active."""
    return not modes.inside_hot and modes.recorder is None and type(owner).__hash__ is not None


def call(owner: object, attribute: str, run: Run, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Call ``run``, a method of ``owner``, and count it. Once it is compiled, ``attribute`` is what to call instead."""
    count = _calls[owner] = _calls.get(owner, 0) + 1
    called = _outermost(run)
    if count == AFTER:
        called = vars(owner)[attribute] = _outermost(load_module("tracecomp.compiled.function").HotCall(run))
        _compiled[owner] = attribute
    return called(*args, **kwargs)


def _outermost(run: Run) -> Run:
    """``run``, in whose calls nothing else is counted."""

    def call(*args: object, **kwargs: object) -> object:
        before, modes.inside_hot = modes.inside_hot, True
        try:
            return run(*args, **kwargs)
        finally:
            modes.inside_hot = before

    return call
