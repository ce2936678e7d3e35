"""CPython's tracing of a recorded call: each instruction of its functions is reported before it runs.

Functions of the program are traced wherever they are called; those of libraries only if the program calls them.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any, TypeVar

from tracecomp.base.capture_guide import Section
from tracecomp.base.code_origin import is_user_file
from tracecomp.base.errors import CaptureError
from tracecomp.base.gc_pause import without_collecting
from tracecomp.base.interpreter import supported
from tracecomp.base.trace_pause import end_trace, paused_trace, resume_trace
from tracecomp.base.user_warnings import warn_user
from tracecomp.eager.modes import modes
from tracecomp.record.frames import STACK_IS_KNOWN, Stack, watch_instructions
from tracecomp.record.guards.ownership import is_program_code
from tracecomp.record.instructions import LIBRARY, PROGRAM, Handlers
from tracecomp.record.recorder import Recorder
from tracecomp.record.watching import Watching

T = TypeVar("T")

_paused: list[Any] = []
_SHOWN = warnings._showwarnmsg.__code__  # type: ignore[attr-defined]
"""The code of Python's function that shows a warning, which functions in C call, too."""


def _pause(phase: str, info: object) -> None:
    observer = sys.gettrace() or paused_trace()
    if phase == "start" and isinstance(getattr(observer, "__self__", None), InstructionTrace):
        _paused.append((end_trace(), modes.recorder))
        modes.recorder = None


def _resume(phase: str, info: object) -> None:
    if phase == "stop" and _paused:
        before, modes.recorder = _paused.pop()
        resume_trace(before)


def _leave_collections_out() -> None:
    """Exclude code that a garbage collection runs (finalizers, closed generators, callbacks) from observation.

    It is not part of a recorded program. Callbacks run in order at both ends, so these two enclose the rest. The
    collector is paused only in handlers: programs ask whether it is enabled.
    """
    if gc.callbacks[:1] != [_pause] or gc.callbacks[-1:] != [_resume]:
        gc.callbacks[:] = [_pause, *(each for each in gc.callbacks if each not in (_pause, _resume)), _resume]


class InstructionTrace:
    """Calls the handlers of instructions with ``observer``; ``entered`` is called with each frame of the program."""

    def __init__(
        self, observer: Watching, recorder: Recorder, root: CodeType | None, entered: Callable[[FrameType], None]
    ) -> None:
        self._observer = observer
        self._recorder = recorder
        self._root = root
        self._entered = entered
        self._handlers: dict[int, tuple[CodeType, Handlers | None]] = {}
        self._before: Callable[..., Any] | None = None
        self._imports = 0  # modules whose code runs now, for the first time: later calls do not repeat it

    def run(self, run: Callable[[], T]) -> T:
        """Run ``run()`` with every instruction reported."""
        if not STACK_IS_KNOWN:
            self._recorder.refuse_here(
                f"runs on {sys.version.split()[0]}, whose bytecode is unsupported",
                Section.EXCLUDE,
                f"Use CPython {supported()}",
            )
            return run()
        self._before = sys.gettrace()
        _leave_collections_out()
        trace = self._called
        if self._before is None:  # a debugger sees all frames
            self._recorder.trace = trace
        try:
            sys.settrace(trace)
            return run()
        finally:
            sys.settrace(self._before)  # before anything that Ctrl-C could interrupt
            self._recorder.trace = None

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code is _SHOWN and self._recorder.refusals.reason is None:
            self._observer.changes.shown(frame)
        if code is self._root and self._recorder.refusals.running is None:
            self._recorder.refusals.running = frame
        before = self._before(frame, event, arg) if self._before is not None else None
        if code.co_name == "<module>" and not _is_evaluated(frame):
            return self._import(frame, before)
        if self._imports:
            return before
        found = self._handlers.get(id(code))
        if found is None:
            found = self._handlers[id(code)] = (code, self._handlers_of(frame))
        handlers = found[1]
        if handlers is None or self._recorder.refusals.reason is not None:
            return before
        if handlers.of_program:
            self._recorder.catches |= handlers.catches
            self._entered(frame)
        elif frame.f_back is None or not frame.f_back.f_trace_opcodes:
            return before  # a library's code in the service of this package
        traced = self._local(handlers, before)
        watch_instructions(frame, traced)
        frame.f_trace_lines = before is not None
        return traced

    def _import(self, frame: FrameType, before: Any) -> Callable[..., Any]:
        """Observe nothing until the code of a module, which is being imported, has run."""
        self._imports += 1
        frame.f_trace_lines = before is not None

        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "return":
                self._imports -= 1
            if before is not None:
                before = before(frame, event, arg)
            return traced

        return traced

    def _handlers_of(self, frame: FrameType) -> Handlers | None:
        code = frame.f_code
        if is_program_code(code, frame.f_globals):
            return Handlers.of(code, PROGRAM)
        return Handlers.of(code, LIBRARY) if is_user_file(code.co_filename) else None

    def _local(self, handlers: Handlers, before: Any) -> Callable[..., Any]:
        table = handlers.at

        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                found = table.get(frame.f_lasti)
                if found is not None:
                    stack = Stack(frame, found[0])
                    for handle, argument in found[1]:
                        if self._recorder.refusals.reason is None:
                            self._handle(handle, stack, argument)
                            self._release()
                return traced
            if event == "exception":
                self._observer.making.pop(id(frame), None)  # the frame's call has made nothing
            if before is not None:
                before = before(frame, event, arg)
            return traced

        return traced

    def _release(self) -> None:
        if self._recorder.refusals.reason is not None:
            self._observer.release()

    def _handle(self, handle: Callable[..., object], stack: Stack, argument: object) -> None:
        try:
            # A collection could change dictionaries that the handler goes through. Between handlers it is as outside.
            without_collecting(partial(handle, self._observer, stack, argument))
        except CaptureError:
            raise
        except RecursionError:
            self._recorder.refuse_here("uses a value that is nested too deeply", Section.STATE)
        except Exception as error:  # such as a class of the program that cannot say how long it is
            file, line = _raised_at(error)
            if not is_user_file(file):
                warn_user(
                    f"internal error of tracecomp: the recorder cannot track this line ({error!r} at {file}:{line})",
                    "This call runs as Python", "Report it, with this line", RuntimeWarning,
                )  # fmt: skip
            what = f"reads an object that cannot be inspected ({type(error).__name__}: {error})"
            self._recorder.refuse_here(what, Section.STATE)


def _is_evaluated(frame: FrameType) -> bool:
    """Whether the program runs a text by ``eval`` or ``exec``, not the code of a module that is imported."""
    caller = frame.f_back
    return caller is not None and caller.f_trace_opcodes and is_program_code(caller.f_code, caller.f_globals)


def _raised_at(error: Exception) -> tuple[str, int]:
    """File and line that raised ``error``: of this package, or of a class of the program that it has asked."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_filename, line
