"""A compiled program: its code, the memory of its calls, and the call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import tracecomp.codegen as codegen
from tracecomp.base import config
from tracecomp.base.errors import native_failure
from tracecomp.codegen.text import native
from tracecomp.ir.program import Program
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.images import image_of
from tracecomp.runtime.jitdump import opened
from tracecomp.runtime.loaded import Loaded, loaded

if TYPE_CHECKING:  # code generation is loaded only when needed
    from tracecomp.codegen.kernels.program import ProgramCode

Array = np.ndarray[Any, Any]


class Executable:
    """A program as machine code.

    Arrays are as large as their slots, outputs C-contiguous; distinct slots have distinct memory (state that is updated
    in place is one slot). Calls from several Python threads at once are safe. ``seconds`` are the times of steps: of
    linking, and of those that were done again for readers.
    """

    def __init__(self, program: Program | Callable[[], Program], image: Image | None = None) -> None:
        """Compile ``program``; with an ``image``, ``program`` may be a function that returns it on request."""
        self._source = program
        self.image = image or image_of(self.program)
        start = time.perf_counter()
        self._native = loaded(self.image)
        self.seconds = {"text": 0.0, "LLVM": 0.0, "link": time.perf_counter() - start}
        if folder := config.current().jitdump:
            opened(folder, os.getpid()).add(self.program, self._native.library, self.image.objects)

    @cached_property
    def program(self) -> Program:
        """The compiled program."""
        return self._source if isinstance(self._source, Program) else self._source()

    @property
    def entry(self) -> int:
        """The address of the native entry."""
        return self._native.entry

    def fail(self, word: int) -> None:
        """Raise the exception for the word that the entry reported."""
        raise native_failure(word, self.image.labels)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None, seen: object = None
    ) -> None:
        """Compute ``outputs`` from ``inputs``; IndexError names the operation whose index is out of range.

        Calls with an equal ``seen`` (not None) have the same values of frozen inputs: the preparation of one may serve
        the others.
        """
        self._native.run((*inputs, *outputs), threads, seen)

    def free_idle(self) -> None:
        """Free the memory of calls that have ended; the next one allocates again."""
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
        """Compile the code of ``run_profiled``."""
        assert self._profiled

    @cached_property
    def _profiled(self) -> Loaded:
        return loaded(image_of(self.program, profile=True))

    @cached_property
    def code(self) -> ProgramCode:
        """The program as LLVM text, written once more for readers."""
        start = time.perf_counter()
        code: ProgramCode = codegen.emit_program(self.program, compiler.host_target())
        self.seconds["text"] = time.perf_counter() - start
        return code

    @property
    def llvm_ir(self) -> str:
        """The module as LLVM text."""
        return self.code.text

    @cached_property
    def annotated(self) -> str:
        """The machine code, disassembled, with directives for the user's line of every instruction."""
        text = codegen.emit_program(self.program, compiler.host_target(), lines=True).text
        start = time.perf_counter()
        assembly = native.compile_assembly(text, compiler.host_target())
        self.seconds["LLVM"] = time.perf_counter() - start
        return assembly

    @property
    def assembly(self) -> str:
        """The module's machine code, disassembled."""
        return native.compile_assembly(self.llvm_ir, compiler.host_target())
