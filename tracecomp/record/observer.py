"""Observation of a program's reads and changes of outside Python objects, instruction by instruction.

While a program is recorded, CPython reports each instruction of the program's functions before it runs. Instructions
that read an attribute, a global or an element, or pass a value to other code, become reads (``guards/reads.py``). Those
that change an object from before the call become effects. Library code is opaque: its arguments count as read as a
whole, and its reads of the outside world are refused (``outside.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

from tracecomp.base.errors import CaptureError
from tracecomp.eager.tensor import Tensor
from tracecomp.record.calls import called
from tracecomp.record.effects import Effect
from tracecomp.record.frames import function_of
from tracecomp.record.guards.ownership import is_module
from tracecomp.record.guards.read_steps import Element, Entry
from tracecomp.record.guards.reads import Read, Reads
from tracecomp.record.guards.snapshots import is_by_contents
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.instruction_trace import InstructionTrace
from tracecomp.record.known_objects import added_with_steps, item_of, parts_with_steps
from tracecomp.record.object_reads import ObjectReads
from tracecomp.record.pytree import is_record, is_varying, opened
from tracecomp.record.recorder import Recorder
from tracecomp.record.same_values import is_value

T = TypeVar("T")


class Observer(ObjectReads):
    """Around a call, notes what the program's functions read, and as effects what they change."""

    def __init__(self, recorder: Recorder, reads: Reads, root: CodeType | None) -> None:
        super().__init__(recorder, reads)
        self._root = root
        self._whole: list[Read] = []  # arguments that are guarded by identity

    def call(self, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """``fn(*args, **kwargs)``, observed."""
        try:
            return self._watch(partial(fn, *args, **kwargs))
        except RecursionError as error:
            error.add_note(
                f"The call was recorded, with Python's recursion limit of {sys.getrecursionlimit()} frames. "
                "Raise the limit with sys.setrecursionlimit()."
            )
            raise
        finally:
            self.recorder.refusals.running = None

    def derive(self, run: Callable[[], T]) -> T:
        """``run()``, a backward pass that callers make later: its reads count, effects are refused."""
        self.changes.later = True
        found = self._watch(run)
        if self.recorder.refusals.reason is not None:  # a hook has caught the refusal
            raise CaptureError(str(self.recorder.refusals.reason))
        return found

    def _watch(self, run: Callable[[], T]) -> T:
        # Not kept: an observer that holds itself would hold what the call has read until a collection.
        return InstructionTrace(self, self.recorder, self._root, self._entered).run(run)

    def start(self, fn: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Register the compiled function and its arguments before the call."""
        given = Read(None, None, (args, kwargs), "arguments")
        given.is_given = True
        self.reads.given = given
        for i, value in enumerate(args):
            self._give(given.child(Element(0), args, "arguments").child(Element(i), value, f"argument [{i}]"))
        for name, value in kwargs.items():
            self._give(given.child(Element(1), kwargs, "arguments").child(Entry(name), value, f"argument {name}"))
        if isinstance(fn, MethodType):
            self.reach(fn.__self__, self.reads.root(fn.__self__, f"attribute of {type(fn.__self__).__name__}:"))
        elif not isinstance(fn, FunctionType):
            self.reach(fn, self.reads.root(fn, f"attribute of {type(fn).__name__}:"))
        if isinstance(fn, partial):
            called(self, fn, list(args), dict(kwargs))

    def _give(self, read: Read) -> None:
        """Know an argument: containers by where they are among the arguments, which are guarded as they are."""
        value = read.value
        if id(value) in self.known:
            return  # reached by two paths
        if opened(type(value)) or is_record(value) or is_by_contents(value):
            read.is_given = True
            self.known[id(value)] = read
            self.changes.give(read)
            if is_varying(type(value)):
                self._know_class(type(value))
            for step, item in [*parts_with_steps(value), *added_with_steps(value)]:
                self._give(read.child(step, item, item_of(read, step.key)))
            self._reach_keys(value)
        elif isinstance(value, np.ndarray):
            read.is_given = True
            self.known[id(value)] = read
        elif not isinstance(value, Tensor) and not is_value(value):
            self.reads.borrowed.add(id(value))
            read = self.reads.root(value, f"attribute of {type(value).__name__}:")
            self._whole.append(read)
            self.reach(value, read)

    def filled_arguments(self, effects: Sequence[Effect]) -> set[type]:
        """The classes of arguments in which the call has put tensors, as in a cache of one request.

        The next request has another object, and a recording that is guarded by identity serves one request only.
        Recordings that follow take such objects apart.
        """
        found: set[type] = set()
        for effect in effects:
            path: list[Read] = []
            read = effect.owner if any(isinstance(x, Tensor) for x in effect.args) else None
            while read is not None:
                path.append(read)
                read = read.owner
            if path and any(path[-1] is argument for argument in self._whole):
                found |= {type(r.value) for r in path if not is_container(r.value) and not is_module(r.value)}
        return found

    def _entered(self, frame: FrameType) -> None:
        """Know a function of the program that was there before the call, its closure and its defaults."""
        if frame.f_code.co_name == "<module>":  # a text that the program evaluates
            return
        fn = function_of(frame)
        code = frame.f_code
        if fn is not None and id(fn) not in self.made and id(fn) not in self._functions:
            self._functions[id(fn)] = fn
            self._know_function(fn)
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if code.co_name in ("__init__", "__new__", "__post_init__") and id(owner) not in self.known:
                self.made.add(id(owner))
            elif id(owner) not in self.known and id(owner) not in self.made:
                self.reach(owner, self.reads.root(owner, f"attribute of {type(owner).__name__}:"))
