"""A compiled program: its code, the memory of its calls, and the call."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.errors import native_failure
from tracecomp.codegen.kernels.program import ProgramCode, emit_program
from tracecomp.codegen.text import native
from tracecomp.codegen.threads.entry import ENTRY
from tracecomp.ir.program import Program
from tracecomp.runtime import threads
from tracecomp.runtime.entry import load, new_call
from tracecomp.runtime.guarded import GuardedCall, guarded_bytes
from tracecomp.runtime.image import Image
from tracecomp.runtime.jitdump import opened
from tracecomp.runtime.malloc import aligned_bytes

Array = np.ndarray[Any, Any]


@dataclass
class _Call:
    """A builtin and its arena, whose preparation is for what was ``seen`` last."""

    run: Callable[..., int]
    arena: Array
    seen: Any = None


class Loaded:
    """One way of compiling a program, loaded. Idle calls keep their memory, by thread count, to be used again."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.library = load(image.objects)
        self.entry = self.library.address(ENTRY)
        self._idle: defaultdict[int, list[_Call]] = defaultdict(list)

    def run(self, arrays: Sequence[Array], count: int | None, seen: object = None) -> None:
        """Run on ``arrays``; IndexError names the operation whose index is out of range.

        Inputs that last are as they were in calls with an equal ``seen``; None: they may be different each time.
        """
        count = threads.wanted(count) if self.image.parallel else 1
        if count > 1:
            threads.start_workers(count - 1)
        idle = self._idle[count]
        try:
            call = idle.pop()
        except IndexError:
            call = self._new_call(count)
        if self.image.prepared is not None:
            call.arena[self.image.prepared] = seen is not None and seen == call.seen
            call.seen = None
        failed = call.run(*arrays)
        if failed >= 0:
            call.seen = seen
        idle.append(call)
        if failed > 0:
            raise native_failure(failed, self.image.labels)
        if failed:
            self.run(self._plain(arrays), count, seen)

    def free_idle(self) -> None:
        """Give back the memory of calls that have ended."""
        self._idle.clear()

    def _plain(self, arrays: Sequence[Array]) -> list[Array]:
        """Objects of exactly the type ndarray: the same memory, or contiguous copies of inputs."""
        if len(arrays) != self.image.arrays or not all(isinstance(a, np.ndarray) for a in arrays):
            raise TypeError(f"{self.image.arrays} arrays are wanted, {[type(a).__name__ for a in arrays]} were given")
        outputs = arrays[self.image.inputs :]
        if not all(a.flags.c_contiguous for a in outputs):
            raise ValueError("outputs must be C-contiguous")
        return [*map(np.ascontiguousarray, arrays[: self.image.inputs]), *[a.view(np.ndarray) for a in outputs]]

    def _new_call(self, count: int) -> _Call:
        arena_bytes = self.image.memory_bytes + count * self.image.thread_bytes
        pool, memory = threads.POOL.ctypes.data, guarded_bytes if self.image.checked else aligned_bytes
        return _Call(*new_call(self.entry, self.image.arrays, arena_bytes, count, pool, memory))


class _Guarded(Loaded):
    """Checked code: it works on copies in guarded memory."""

    def run(self, arrays: Sequence[Array], count: int | None, seen: object = None) -> None:
        """As of code that is not checked; CheckError when it writes what it should not."""
        call = GuardedCall(self._plain(arrays), self.image.inputs, self.image.written)
        super().run(call.arrays, count, seen)
        call.finish(", ".join(self.image.labels))


def _loaded(image: Image) -> Loaded:
    return (_Guarded if image.checked else Loaded)(image)


class Executable:
    """A program as machine code.

    Arrays are as large as their slots, outputs C-contiguous; distinct slots have distinct memory (state that is updated
    in place is one slot). Calls from several Python threads at once are safe.
    """

    def __init__(self, program: Program | Callable[[], Program], image: Image | None = None) -> None:
        """Compile ``program``; given its ``image``, ``program`` may be a function that makes it when needed."""
        self._source = program
        self.image = image or Image.of(self.program)
        self._native = _loaded(self.image)
        if folder := config.current().jitdump:
            opened(folder, os.getpid()).add(self.program, self._native.library, self.image.objects)

    @cached_property
    def program(self) -> Program:
        """What is compiled."""
        return self._source if isinstance(self._source, Program) else self._source()

    @property
    def entry(self) -> int:
        """The address of the native entry."""
        return self._native.entry

    def fail(self, word: int) -> None:
        """The exception for what a call of the entry has reported."""
        raise native_failure(word, self.image.labels)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None, seen: object = None
    ) -> None:
        """Compute ``outputs`` from ``inputs``; IndexError names the operation whose index is out of range.

        Calls with an equal ``seen`` (not None) are given the same values of inputs that last: what one of them has
        prepared may serve the others.
        """
        self._native.run((*inputs, *outputs), threads, seen)

    def free_idle(self) -> None:
        """Give back the memory of calls that have ended; the next one takes new memory."""
        self._native.free_idle()

    def run_profiled(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None, seen: object = None
    ) -> list[tuple[str, float]]:
        """Run, and return ``(label, seconds)`` for each step; a repeated step's times are added up."""
        labels = self._profiled.image.labels
        times = np.zeros(max(len(labels), 1), np.int64)
        self._profiled.run((*inputs, *outputs, times), threads, seen)
        return [(label, float(t) * 1e-9) for label, t in zip(labels, times, strict=False)]

    def prepare_timing(self) -> None:
        """Compile what ``run_profiled`` runs."""
        assert self._profiled

    @cached_property
    def _profiled(self) -> Loaded:
        return _loaded(Image.of(self.program, profile=True))

    @cached_property
    def code(self) -> ProgramCode:
        """The program as LLVM text, written once more for readers."""
        return emit_program(self.program, native.host_target())

    @property
    def llvm_ir(self) -> str:
        """The module's LLVM text."""
        return self.code.text

    @cached_property
    def annotated(self) -> str:
        """The machine code, disassembled, with directives that tell the user's line of every instruction."""
        text = emit_program(self.program, native.host_target(), lines=True).text
        return native.compile_assembly(text, native.host_target())

    @property
    def assembly(self) -> str:
        """The module's machine code, disassembled."""
        return native.compile_assembly(self.llvm_ir, native.host_target())
