"""Calls that are compared with eager ones while a program is in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tracecomp.base.errors import WrongResult
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled.eager_vs_compiled import Lockstep

MISMATCHES = ("raise", "warn")


class Calls(Protocol):
    """The interface of a compiled function for verification."""

    __call__: Callable[..., Any]
    fn: Callable[..., Any]

    @property
    def recordings(self) -> int: ...

    def _general(self, *args: Any, **kwargs: Any) -> Any: ...


class Verifier:
    """Replace the call of ``compiled``, and repeat some of its calls eagerly, from the same state.

    ``verify`` is "first", for the first call that runs from a recording, or the number of calls between two
    comparisons. If the two differ by more than rounding, WrongResult is raised and the state is restored. If
    ``mismatch`` is "warn", there is a warning instead, and the call has its normal effects.
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        self.calls += 1
        if self.calls == 1 or (self.every is not None and self.calls % self.every):
            return self.compiled._general(*args, **kwargs)  # the first call is eager anyway
        return self._checked(args, kwargs)

    def _checked(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        compiled = self.compiled
        recordings = compiled.recordings
        lockstep = Lockstep(compiled.fn, compiled._general, differentiate=False)
        before = lockstep.state((args, kwargs))
        found = lockstep.step((args, kwargs))
        if found:
            name = getattr(compiled.fn, "__name__", type(compiled.fn).__name__)
            lines = "\n  ".join(map(str, found[:5]))
            cause = f"call {self.calls} of {name} differs from the eager call:\n  {lines}\n"
            remedy = f"Call tracecomp.compare({name}, ...) with these arguments to locate the difference"
            if self.mismatch == "raise":
                before.restore()
                raise WrongResult(f"{cause}{remedy}.")
            cost = "The call's result may be wrong"
            warn_user(cause.rstrip(), cost, remedy, about=("verify", name), fn=compiled.fn)
        if self.every is None and compiled.recordings == recordings:
            compiled.__call__ = compiled._general  # no comparisons from now on
        latest = lockstep.latest
        if latest.error is not None:
            raise latest.error
        return latest.result
