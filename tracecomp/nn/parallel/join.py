"""Uneven inputs: processes that have none left take part in what the others still send."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.eager.modes import modes, no_grad
from tracecomp.functional import names as T
from tracecomp.nn.parallel.reducer import Reducer
from tracecomp.ops.prim import prim

_EARLY = "Detected at least one rank that exhausted inputs. Throwing across all ranks."


class _Round(NamedTuple):
    """One forward pass: which ranks have inputs, and whether their backward passes combine gradients."""

    active: tuple[int, ...]
    synchronised: bool


class Joining:
    """A block ``with model.join()``. Before every forward pass all processes tell whether they have inputs.

    Those without any go on answering in ``finish``, with zeros for gradients, until nobody has inputs.
    """

    def __init__(self, reducer: Reducer, group: Group, by_initial: bool, raises: bool) -> None:
        self._reducer, self._group, self._by_initial, self._raises = reducer, group, by_initial, raises
        self.last = _Round(tuple(range(group.size())), True)

    def begin(self, synchronised: bool) -> int:
        """Tell that a forward pass begins here; the rank whose buffers are everybody's."""
        if modes.recorder is not None:
            modes.recorder.refuse_here("a forward pass inside of join(), whose part differs from rank to rank")
        self._announce(1 + synchronised)
        return self.last.active[-1]

    def _announce(self, told: int) -> bool:
        """Hear from all; whether somebody has inputs. RuntimeError in all if that was asked for and one has none."""
        with no_grad():
            found = prim.all_gather(T.tensor([told]), group=self._group.group_name, size=self._group.size())
        words = [int(t) for t in (found if isinstance(found, tuple) else (found,))]
        active = tuple(rank for rank, word in enumerate(words) if word)
        if self._raises and 0 < len(active) < len(words):
            raise RuntimeError(at_user_line(_EARLY))
        if active:
            self.last = _Round(active, 2 in words)
            self._reducer.divisor = None if self._by_initial else len(active)
        return bool(active)

    def finish(self, buffers: Callable[[int], None], everything: Callable[[int], None]) -> None:
        """Answer for as long as others have inputs; ``buffers`` and ``everything`` make those of a rank everybody's."""
        while self._announce(0):
            buffers(self.last.active[-1])
            if self.last.synchronised:
                self._reducer.answer()
        everything(self.last.active[-1])
