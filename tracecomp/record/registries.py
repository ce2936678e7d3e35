"""Reads of the process's registries: loaded modules, and the subclasses of abstract classes."""

from __future__ import annotations

import abc
import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.eager.modes import unrecorded
from tracecomp.record.guards.ownership import is_program_class
from tracecomp.record.guards.read_steps import Entry, Registrations
from tracecomp.record.guards.snapshots import MISSING
from tracecomp.record.watching import Watching


def class_test(observer: Watching, args: Sequence[Any], kwargs: Mapping[str, object]) -> None:
    """``isinstance`` or ``issubclass``: abstract classes may get other subclasses, and protocols read attributes."""
    todo = [args[1]]
    while todo:
        kind = todo.pop()
        if isinstance(kind, tuple):
            todo += kind
        elif isinstance(kind, abc.ABCMeta) and kind is not args[0] and kind not in type(args[0]).__mro__:
            if getattr(kind, "_is_protocol", False):
                observer.consume(args[0])
            elif is_program_class(args[0] if isinstance(args[0], type) else type(args[0])):
                step = Registrations(None)
                observer.step(observer.reads.root(abc, "abc"), step, step.fetch(abc), "subclasses of abstract classes")


def imported(observer: Watching, space: Mapping[str, Any], name: str, level: int) -> None:
    """The program imports a module: one that is not loaded yet is loaded here, outside of the recording."""
    if level:
        base = str(space.get("__package__") or "").rsplit(".", level - 1)[0]
        name = f"{base}.{name}" if name else base
    if name not in sys.modules:
        with contextlib.suppress(Exception), unrecorded():  # the program's own import raises it again
            importlib.import_module(name)
    parts = name.split(".")
    for n in range(len(parts)):
        part = ".".join(parts[: n + 1])
        root = observer.reads.root(sys.modules, "sys.modules")
        observer.step(root, Entry(part), sys.modules.get(part, MISSING), f"module {part}")


def import_module(observer: Watching, args: Sequence[Any], kwargs: Mapping[str, object]) -> None:
    if len(args) == 1 and not kwargs and isinstance(args[0], str) and not args[0].startswith("."):
        imported(observer, {}, args[0], 0)
    else:
        observer.recorder.refuse_here("imports a module by a relative name", Section.IMPURE)
