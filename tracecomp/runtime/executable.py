"""A compiled program: memory, threads, and the call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tracecomp.codegen import native, sync
from tracecomp.codegen.program import ENTRY, ProgramCode, emit_program
from tracecomp.ir.loops import Program
from tracecomp.runtime import cache, threads
from tracecomp.runtime.threads import aligned_bytes

Array = np.ndarray[Any, Any]
_ENTRY_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


class _Memory:
    """What one call at a time needs: call table, arena and synchronisation block."""

    __slots__ = ("arena", "arena_address", "failed", "sync", "sync_address", "table", "table_address")

    def __init__(self, slots: int, arena_bytes: int) -> None:
        self.table = np.zeros(slots + 1, np.uintp)
        self.table_address = self.table.ctypes.data
        self.arena = aligned_bytes(arena_bytes)
        self.arena_address = self.arena.ctypes.data
        self.sync = aligned_bytes(sync.SYNC_BYTES)
        self.sync_address = self.sync.ctypes.data
        self.failed = self.sync[:8].view(np.int64)


class _Native:
    """One way of compiling a program, loaded, with the memory of past calls for the next ones."""

    def __init__(self, program: Program, profile: bool) -> None:
        self.code: ProgramCode = emit_program(program, native.host_target(), profile)
        self.slots = len(program.inputs) + len(program.outputs)
        self.arena_bytes = -(-program.arena_bytes // 64) * 64 + self.code.shared_bytes
        self._library = cache.library(self.code.text, native.host_target())
        self.address = self._library.address(ENTRY)
        self.entry = _ENTRY_TYPE(self.address)
        self._free: dict[int, list[_Memory]] = {}

    def memory(self, count: int) -> _Memory:
        """Memory for a call with ``count`` threads that no other call is using."""
        try:
            return self._free.setdefault(count, []).pop()
        except IndexError:
            return _Memory(self.slots, self.arena_bytes + count * self.code.private_bytes)

    def give_back(self, memory: _Memory, count: int) -> None:
        self._free[count].append(memory)

    def call(self, arrays: Sequence[Array], count: int, times: Array | None = None) -> int:
        """Run on ``arrays``; the number of the step whose index check failed, or 0."""
        count = count if self.code.parallel else 1
        pool = threads.pool() if count > 1 else None
        if pool is None or not pool.busy.acquire(blocking=False):
            return self._call(arrays, 1, None, times)
        try:
            return self._call(arrays, count, pool, times)
        finally:
            pool.busy.release()

    def _call(self, arrays: Sequence[Array], count: int, pool: threads.Pool | None, times: Array | None) -> int:
        memory = self.memory(count)
        memory.failed[0] = 0
        memory.table[: self.slots] = [a.__array_interface__["data"][0] for a in arrays]
        if times is not None:
            memory.table[self.slots] = times.ctypes.data
        if pool is None:
            self.entry(memory.table_address, memory.arena_address, 0, 1, memory.sync_address)
        else:
            pool.launch(self.address, memory.table_address, memory.arena_address, count, memory.sync_address)
        failed = int(memory.failed[0])
        self.give_back(memory, count)
        return failed


class Executable:
    """A program as machine code.

    Arrays are C-contiguous and as large as their slots; distinct slots have distinct memory (state that is updated in
    place is one slot). Calls from several Python threads at once are safe.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._native = _Native(program, profile=False)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None) -> None:
        """Compute ``outputs`` from ``inputs``; IndexError names the operation whose index is out of range."""
        self._run(self._native, inputs, outputs, threads, None)

    def run_profiled(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None
    ) -> list[tuple[str, float]]:
        """Run, and return ``(label, seconds)`` for each step; a repeated step's times are added up."""
        labels = self._profiled.code.labels
        times = np.zeros(max(len(labels), 1), np.int64)
        self._run(self._profiled, inputs, outputs, threads, times)
        return [(label, float(t) * 1e-9) for label, t in zip(labels, times, strict=False)]

    def _run(
        self, code: _Native, inputs: Sequence[Array], outputs: Sequence[Array], count: int | None, times: Array | None
    ) -> None:
        failed = code.call((*inputs, *outputs), count or threads.get_num_threads(), times)
        if failed:
            raise IndexError(f"index out of range in {code.code.labels[failed - 1]}")

    @cached_property
    def _profiled(self) -> _Native:
        return _Native(self.program, profile=True)

    @property
    def llvm_ir(self) -> str:
        """The module's LLVM text."""
        return self._native.code.text

    @property
    def assembly(self) -> str:
        """The module's machine code, disassembled."""
        return native.compile_assembly(self.llvm_ir, native.host_target())
