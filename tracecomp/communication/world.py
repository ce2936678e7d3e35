"""The groups of this process, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # loaded with the first group: a single process does not need it
    from tracecomp.communication.group import Group
    from tracecomp.communication.messenger import Messenger
    from tracecomp.communication.stores import Store

SELF = ""
"""The name of the group of a single process; its collectives change nothing."""


class Plan(Protocol):
    """The logical shards of the job (``nn/parallel/shards.py``), as the loader of their batches needs them."""

    total: int
    own: range

    def batches(self, each: Iterator[Any]) -> Iterator[Any]:
        """Combine as many batches as this process has shards."""

    def check_same(self, what: str, values: Sequence[Any]) -> None:
        """RuntimeError unless all processes have the same values."""


class World:
    """The default group, all groups, the messenger that they share, the rendezvous store, and the logical shards that
    the environment asks for."""

    default: Group | None = None
    messenger: Messenger | None = None
    store: Store | None = None
    plan: Plan | None = None
    made = 0

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.local: dict[tuple[int, ...], int] = {}  # how many groups of these ranks only their processes know

    def named(self, name: str) -> Group:
        """The group called ``name``. ValueError when there is none."""
        found = self.groups.get(name)
        if found is None:
            raise ValueError(f"process group {name!r} does not exist: it was destroyed or never created here")
        return found


world = World()
