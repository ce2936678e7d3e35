"""Reads of containers: membership, lengths, iteration."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.c_data import refuse_memory
from tracecomp.record.guards.lookup import is_key
from tracecomp.record.guards.read_steps import Member, Size
from tracecomp.record.guards.snapshots import short
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.watching import Watching


def member(observer: Watching, owner: object, key: object) -> None:
    """The program tests membership in a container."""
    stream(observer, owner)
    read = observer.known.get(id(owner))
    if isinstance(owner, list | tuple | deque) and isinstance(key, Tensor):
        for item in owner:  # the one that it is counts as equal
            observer.same(key, item)
    observer.looked_up(owner, key)
    if read is None:
        return
    if id(owner) in observer.changed:
        observer.contents(owner)
    elif isinstance(owner, dict | set | frozenset) and is_key(key):
        observer.step(read, Member(key), key in owner, f"{short(key)} in {read.where}")
    elif owner is os.environ:
        observer.item(owner, key)
    else:
        observer.contents(owner)


def size(observer: Watching, owner: object) -> None:
    """The program asks how long a container is."""
    if refuse_memory(observer.recorder, owner):
        return
    read = observer.known.get(id(owner))
    if read is None or not is_container(owner):
        observer.consume_state(owner)
    elif id(owner) in observer.changed:
        observer.contents(owner)
    else:
        step = Size(None)
        observer.step(read, step, step.fetch(owner), f"the length of {read.where}")


def iterated(observer: Watching, value: object) -> None:
    """The program goes through a container."""
    if is_container(value):
        observer.contents(value)
    else:
        observer.consume(value)
        stream(observer, value)


def stream(observer: Watching, value: object) -> None:
    """Refuse to take from an iterator that was there before the call."""
    if isinstance(value, Iterator) and id(value) in observer.known:
        observer.recorder.refuse_here(f"advances a {type(value).__name__} created outside of the call", Section.IMPURE)
