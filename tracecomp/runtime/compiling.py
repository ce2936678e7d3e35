"""Machine code of a program's modules, compiled while further ones are written.

LLVM works outside the interpreter lock, so a second thread can run it while the first one continues to write modules.
The second thread starts only for programs of several modules that may use more than one thread, and has ended when
``finish`` returns.
"""

from __future__ import annotations

from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread

from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.runtime import compiler, threads


class Compiling:
    """The objects of one program. As a context: drops the started work if the block fails."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._objects: list[bytes] = []
        self._waiting: SimpleQueue[ModuleText | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._dropped = False

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, *exception: object) -> None:
        self._dropped = True
        self._waiting.put(None)

    def begin(self, module: ModuleText) -> None:
        """Compile a module that others follow, in a separate thread if permitted."""
        if self._thread is None and not self._objects and threads.get_num_threads() > 1:
            self._thread = self._started()
        self._compile(module) if self._thread is None else self._waiting.put(module)

    def finish(self, last: ModuleText) -> tuple[bytes, ...]:
        """Return the objects of all modules, in order; raise any error of their compilation."""
        if self._thread is None:
            self._compile(last)
        else:
            self._waiting.put(last)
            self._waiting.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error
        return tuple(self._objects)

    def _started(self) -> Thread | None:
        """Start the thread; None if the system provides none, or at interpreter shutdown."""
        thread = Thread(target=copy_context().run, args=(self._work,), name="tracecomp compiling")
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    def _work(self) -> None:
        try:
            while (module := self._waiting.get()) is not None and not self._dropped:
                self._compile(module)
        except BaseException as error:  # of the second thread: raised by the waiting thread
            self._error = error

    def _compile(self, module: ModuleText) -> None:
        self._objects.append(compiler.object_code(str(module), self._target))
