"""Calls that are compared with eager ones while a program is in use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from tracecomp.base.errors import Source, WrongResult
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled.eager_vs_compiled import Call, Lockstep, Mismatch, Outcome
from tracecomp.compiled.program_state import SavedState
from tracecomp.eager.modes import modes

MISMATCHES = ("raise", "warn")


class Calls(Protocol):
    """The interface of a compiled function for verification."""

    __call__: Callable[..., Any]
    fn: Callable[..., Any]
    fast_math: bool

    @property
    def recordings(self) -> int: ...

    def _general(self, *args: Any, **kwargs: Any) -> Any: ...

    def _line_of_difference(self, call: Call, place: str, before: SavedState) -> Source | None: ...


class Verifier:
    """Replace the call of ``compiled``, and repeat some of its calls eagerly, from the same state.

    ``verify`` is "first", for the first call that runs from a recording, or the number of calls between two
    comparisons. Results and state must have the same bits, with ``fast_math`` up to rounding. Otherwise WrongResult is
    raised and the state is restored. If ``mismatch`` is "warn", there is a warning instead, and the call has its normal
    effects.
    """

    def __init__(self, compiled: Calls, verify: str | int, mismatch: str) -> None:
        if verify != "first" and (type(verify) is not int or verify < 1):
            raise ValueError(f"compile(): verify must be 'first' or a positive number of calls, got {verify!r}")
        if mismatch not in MISMATCHES:
            raise ValueError(f"compile(): mismatch must be one of {', '.join(MISMATCHES)}, got {mismatch!r}")
        self.compiled = compiled
        self.every = None if verify == "first" else int(verify)
        self.mismatch = mismatch
        self.calls = 0
        self.run: Callable[..., Any] = compiled._general
        """The call without a comparison."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        self.calls += 1
        if self.calls == 1 or (self.every is not None and self.calls % self.every):
            return self.run(*args, **kwargs)  # the first call is eager anyway
        if modes.compared or modes.recorder is not None:  # part of a call that is eager
            return self.run(*args, **kwargs)
        return self._checked(args, kwargs)

    def _checked(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        compiled, call = self.compiled, (args, kwargs)
        recordings = compiled.recordings
        tolerance = None if compiled.fast_math else 0.0
        lockstep = Lockstep(_eagerly(compiled.fn), self.run, tolerance, differentiate=False)
        before = lockstep.state(call)
        found = lockstep.compare(call, before)
        latest = lockstep.latest
        if found:
            found = _without_impure(lockstep, before, call, found)
        if found:
            self._report(before, lockstep.state(call), call, found)
        if self.every is None and compiled.recordings == recordings:
            compiled.__call__ = self.run  # no comparisons from now on
        if latest.error is not None:
            raise latest.error
        return latest.result

    def _report(self, before: SavedState, after: SavedState, call: Call, found: list[Mismatch]) -> None:
        """Raise WrongResult, or warn, with the differences and the user's line of the first one."""
        compiled = self.compiled
        before.restore()
        source = compiled._line_of_difference(call, found[0].place, before)
        before.restore()
        name = getattr(compiled.fn, "__name__", type(compiled.fn).__name__)
        lines = "\n  ".join(map(str, found[:5]))
        where = "" if source is None else f", first at {source} in {source.function}"
        cause = f"call {self.calls} of {name} differs from the eager call{where}:\n  {lines}\n"
        remedy = f"Call tracecomp.compare({name}, ...) with these arguments to locate the difference"
        if self.mismatch == "raise":
            wrong = WrongResult(f"{cause}{remedy}.")
            wrong.source = source
            raise wrong
        after.restore()
        cost = "The call's result may be wrong"
        warn_user(cause.rstrip(), cost, remedy, about=("verify", name), fn=compiled.fn)


def _eagerly(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` with all compiled functions that it calls eager."""

    def run(*args: Any, **kwargs: Any) -> Any:
        modes.compared = True
        try:
            return fn(*args, **kwargs)
        finally:
            modes.compared = False

    return functools.update_wrapper(run, fn, assigned=(), updated=())  # not the attributes of a module


def _without_impure(lockstep: Lockstep, before: SavedState, call: Call, found: list[Mismatch]) -> list[Mismatch]:
    """The mismatches except those at places where two eager calls differ, such as the time.

    Compiled calls must differ there too. If they repeat a value that eager calls no longer give, it is frozen.
    """
    after, roots = lockstep.state(call), lockstep.roots(call)
    eager, compiled = lockstep.eager, lockstep.latest
    before.restore()
    again = lockstep.outcome(lockstep.fn, call, roots)
    impure = {m.place for m in lockstep.mismatches(eager, again)}
    if impure:
        before.restore()
        repeated = lockstep.outcome(lockstep.compiled, call, roots)
        moving = {m.place for m in lockstep.mismatches(compiled, repeated)}
        differing = {m.place for m in lockstep.mismatches(again, repeated)}
        found = [m for m in found if m.place not in impure or (m.place not in moving and m.place in differing)]
    after.restore()
    return found


__all__ = ["MISMATCHES", "Calls", "Outcome", "Verifier"]
