"""Creation and destruction of groups."""

from __future__ import annotations

import atexit
import sys
import zlib
from collections.abc import Sequence

from tracecomp.communication.group import Group
from tracecomp.communication.messages import Transport
from tracecomp.communication.messenger import Messenger
from tracecomp.communication.stores import Store
from tracecomp.communication.world import world

_TURN = 5e-4
"""Seconds after which Python lets another thread run (default: 5 ms): the time that communication waits for other
code."""
_FIRST_LOCAL = 1 << 31
"""The least number of groups that other processes do not know; a number has 32 bits."""
_turn_before = sys.getswitchinterval()


def begin(transport: Transport, seconds: float, backend: str, name: str, store: Store | None) -> Group:
    """Create the default group of all processes of ``transport``."""
    global _turn_before
    world.messenger, world.store = Messenger(transport), store
    if transport.size > 1:
        _turn_before = sys.getswitchinterval()
        sys.setswitchinterval(min(_TURN, _turn_before))
    world.made += 1
    world.default = _made(world.messenger, range(transport.size), seconds, backend, name, world.made)
    return world.default


def add(ranks: Sequence[int], seconds: float, backend: str, name: str) -> Group | None:
    """Create a group; None if this process is not in it. All processes create the same groups in the same order."""
    if world.messenger is None or world.messenger.rank not in ranks:
        world.made += 1
        return None
    world.made += 1
    return _made(world.messenger, ranks, seconds, backend, name, world.made)


def add_locally(ranks: Sequence[int], seconds: float, backend: str) -> Group | None:
    """Create a group that only its processes know; None if this process is not in it.

    Processes outside do not count it, so its number in messages follows from its ranks. RuntimeError if another group
    has that number.
    """
    if world.messenger is None or world.messenger.rank not in ranks:
        return None
    key = (*ranks,)
    world.local[key] = world.local.get(key, 0) + 1
    name = f"local {key} {world.local[key]}"
    number = _FIRST_LOCAL + zlib.crc32(name.encode()) % _FIRST_LOCAL
    if any(group.number == number for group in world.groups.values()):
        raise RuntimeError(f"new_group({[*ranks]}): its number collides with another group; create it without "
                           "use_local_synchronization")  # fmt: skip
    return _made(world.messenger, ranks, seconds, backend, name, number)


def _made(messenger: Messenger, ranks: Sequence[int], seconds: float, backend: str, name: str, number: int) -> Group:
    group = Group(messenger, ranks, number, seconds, backend, name or str(number - 1))
    world.groups[group.group_name] = group
    return group


def drop(group: Group) -> None:
    """Drop one group."""
    group.worker.stop()
    group.sender.stop()
    group.messenger.forget(group.number)
    world.groups.pop(group.group_name, None)


def end(how: str = "left: it destroyed its process group") -> None:
    """Drop all groups and notify the other processes."""
    for group in [*world.groups.values()]:
        drop(group)
    if world.messenger is not None:
        world.messenger.leave(how)
        if world.messenger.size > 1:
            sys.setswitchinterval(_turn_before)
    world.default = world.messenger = world.store = None
    world.plan, world.made = None, 0
    world.local.clear()


@atexit.register
def _at_exit() -> None:
    """Notify the others when a process ends without having destroyed its groups."""
    if world.default is not None:
        error = getattr(sys, "last_value", None)
        end(f"died of {type(error).__name__}: {error}" if error is not None else "has ended")
