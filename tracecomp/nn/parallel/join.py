"""Uneven inputs: processes without inputs take part in the communication of the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.communication.work import Work
from tracecomp.eager.modes import modes, no_grad
from tracecomp.functional import names as T
from tracecomp.ops.prim import prim

_EARLY = "Detected at least one rank that exhausted inputs. Throwing across all ranks."


class JoinHook:
    """The part of a process without inputs in the steps of the others."""

    def main_hook(self) -> None:
        """Make the collective calls of one step; called once for each step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all processes have finished their inputs, with whether this one was among the last."""


class Joinable(ABC):
    """A participant of ``Join``. Before the collective calls of each step it calls
    ``Join.notify_join_context(self)``."""

    _join: Join | None = None

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook; ``kwargs`` are those of ``Join``."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of its collective calls."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collective calls."""


class _Step(NamedTuple):
    """One step: which ranks have inputs, and whether their backward passes combine gradients."""

    active: tuple[int, ...]
    synchronised: bool


class Join:
    """A block in which processes may have different numbers of inputs.

    Before every step all processes announce whether they have inputs, for the first of ``joinables``. Those without
    inputs take part when they leave the block, until all have finished. With ``throw_on_early_termination``,
    RuntimeError in all processes when the first one has no inputs left. ValueError without joinables, and for several
    groups.
    """

    def __init__(
        self, joinables: Sequence[Joinable], enable: bool = True, throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if not joinables:
            raise ValueError(at_user_line("The join context manager requires at least one joinable"))
        groups: list[Group] = [j.join_process_group for j in joinables]
        if any(g is not groups[0] for g in groups):
            raise ValueError(at_user_line("Using join context manager with multiple process groups"))
        self._joinables, self._group = [*joinables], groups[0]
        self._enable, self._raises = enable, throw_on_early_termination
        self.last = _Step(tuple(range(self._group.size())), True)
        self._hooks = [j.join_hook(**kwargs) for j in joinables]
        for joinable in joinables:
            joinable._join = self if enable else None

    def __enter__(self) -> None:
        """Do nothing: steps announce themselves."""

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        try:
            if self._enable and kind is None:
                self._answer()
        finally:
            for joinable in self._joinables:
                joinable._join = None

    def _answer(self) -> None:
        """Take part in the steps of the other processes until there are none."""
        last = True
        while self._announce(0):
            last = False
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Announce the start of a step; return a finished Work, or None for all but the first joinable of a block."""
        join = joinable._join
        return None if join is None or not join.begin(joinable, True) else Work.done(None)

    def begin(self, joinable: Joinable, synchronised: bool) -> bool:
        """Announce the start of a step of ``joinable``; False for all but the first one, to whose step it belongs."""
        if joinable is not self._joinables[0]:
            return False
        if modes.recorder is not None:
            modes.recorder.refuse_here("a step inside of join(), whose part differs from rank to rank")
        self._announce(1 + synchronised)
        return True

    def _announce(self, told: int) -> bool:
        """Exchange announcements; return whether any process has inputs. RuntimeError in all processes if one has none
        and that was requested."""
        with no_grad():
            found = prim.all_gather(T.tensor([told]), group=self._group.group_name, size=self._group.size())
        words = [int(t) for t in (found if isinstance(found, tuple) else (found,))]
        active = tuple(rank for rank, word in enumerate(words) if word)
        if self._raises and 0 < len(active) < len(words):
            why = _EARLY if told else f"Rank {self._group.rank()} exhausted all inputs."
            raise RuntimeError(at_user_line(why))
        if active:
            self.last = _Step(active, 2 in words)
        return bool(active)
