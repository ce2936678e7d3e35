"""A jitdump: the file that describes a process's generated code to Linux' perf, with names and the user's lines.

The format is perf's own
(https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jitdump-specification.txt). ``perf record -k
mono python ...``, ``perf inject --jit`` and ``perf report`` or ``perf annotate`` read it.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import tracecomp.codegen as codegen
from tracecomp.base.locks import Lock
from tracecomp.codegen.text import native
from tracecomp.ir.program import Program, call_steps
from tracecomp.runtime import compiler
from tracecomp.runtime.library import Library

_MAGIC, _VERSION = 0x4A695444, 1
"""Start of the file: "JiTD", and its only version."""
_LOAD, _LINES = 0, 2
"""Kinds of records."""
_HEADER = struct.Struct("<IIIIIIQQ")
_RECORD = struct.Struct("<IIQ")
_CODE = struct.Struct("<IIQQQQ")
_LINE = struct.Struct("<QII")

Line = tuple[int, str, int]
"""Byte offset of an instruction in its function, and its file and line."""


class _Function(NamedTuple):
    """A function of an object: its offset and size in bytes, and whether other objects can call it by name."""

    name: str
    offset: int
    size: int
    is_global: bool


class Jitdump:
    """The file of this process in ``folder``; OSError if it cannot be written."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"jit-{os.getpid()}.dump"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Other users who can write to the folder can guess the name, and must not make it a link to a file of this
        # user.
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self.path, flags, 0o600)
        machine = _elf(native.compile_object("", compiler.host_target())).header["e_machine"]
        number = {"EM_X86_64": 62, "EM_AARCH64": 183}[machine]
        os.write(self._file, _HEADER.pack(_MAGIC, _VERSION, _HEADER.size, number, 0, os.getpid(), _now(), 0))
        # perf finds the file because the process maps it as code.
        self._mapped = mmap.mmap(self._file, _HEADER.size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
        self._numbers, self._writing = count(), Lock()

    def add(self, program: Program, library: Library, objects: Sequence[bytes]) -> None:
        """Write the functions of a program that was loaded from ``objects``."""
        code = codegen.emit_program(program, compiler.host_target(), lines=True)
        lines = dict(_lines(native.compile_object(code.text, compiler.host_target())))
        kernels = {f: s.kernel.name for f, s in zip(code.functions, call_steps(program.steps), strict=True)}
        for data in objects:
            functions = _functions(data)
            known = next(f for f in functions if f.is_global)
            start = library.address(known.name) - known.offset
            for f in functions:
                first, dot, rest = f.name.partition(".")
                name = f"{program.name}: {kernels.get(first, first)}{dot}{rest}"
                with self._writing:
                    self._write(name, start + f.offset, f.size, lines.get(f.name, ()))

    def _write(self, name: str, address: int, size: int, lines: Sequence[Line]) -> None:
        """One function: its lines, then itself."""
        known = [_LINE.pack(address + at, number, 0) + file.encode() + b"\0" for at, file, number in lines]
        if known:
            self._record(_LINES, struct.pack("<QQ", address, len(known)) + b"".join(known))
        ids = (os.getpid(), threading.get_native_id(), address, address, size, next(self._numbers))
        body = ctypes.string_at(address, size)  # as loaded: an object has no addresses of constants yet
        self._record(_LOAD, _CODE.pack(*ids) + name.encode() + b"\0" + body)

    def _record(self, kind: int, content: bytes) -> None:
        os.write(self._file, _RECORD.pack(kind, _RECORD.size + len(content), _now()) + content)


@cache
def opened(folder: str, process: int) -> Jitdump:
    """The file of process ``process``, which is this one: a forked child has a separate file."""
    return Jitdump(folder)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def _elf(data: bytes) -> Any:
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise ImportError("a jitdump needs the package pyelftools: pip install 'tracecomp[perf]'") from error
    return ELFFile(io.BytesIO(data))


def _functions(data: bytes) -> list[_Function]:
    """The functions of an object, all of which are in one section."""
    symbols = _elf(data).get_section_by_name(".symtab").iter_symbols()
    found = [s for s in symbols if s["st_info"]["type"] == "STT_FUNC"]
    return [_Function(s.name, s["st_value"], s["st_size"], s["st_info"]["bind"] == "STB_GLOBAL") for s in found]


def _lines(data: bytes) -> Iterator[tuple[str, list[Line]]]:
    """Yield functions with the source line of each instruction, from an object compiled with lines."""
    elf = _elf(data)
    if not elf.has_dwarf_info():
        return
    states = []
    for unit in (dwarf := elf.get_dwarf_info(relocate_dwarf_sections=True)).iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        home = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
        folders = [b"" if home is None else home.value, *program["include_directory"]]
        files = [os.path.join(folders[f.dir_index], f.name).decode() for f in program["file_entry"]]
        states += [(s.address, files[s.file - 1], s.line) for e in program.get_entries() if (s := e.state) and s.line]
    for f in _functions(data):
        yield f.name, [(at - f.offset, file, n) for at, file, n in states if f.offset <= at < f.offset + f.size]
