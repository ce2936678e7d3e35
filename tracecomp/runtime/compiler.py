"""Machine code of texts, from the disk if present: then LLVM, whose import takes 30 ms, is not loaded.

A key names the compiler and the machine. LLVM's description of both is also kept on disk, as long as the processor and
LLVM's loaded files are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tracecomp.codegen.math.half_library import HALF_FUNCTIONS, half_text
from tracecomp.codegen.text import native
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.text.target import Target
from tracecomp.runtime import object_cache
from tracecomp.runtime.library import Library, add_symbol
from tracecomp_runtime import processor

_MAPPED = Path("/proc/self/maps")


@dataclass(frozen=True)
class _Answers:
    """LLVM's description of itself and of this machine, and the files it was loaded from, with their state."""

    version: str
    target: Target
    files: tuple[tuple[str, int, int], ...]

    def to_bytes(self) -> bytes:
        return json.dumps([self.version, astuple(self.target), self.files]).encode()

    @staticmethod
    def from_bytes(data: bytes) -> _Answers:
        version, target, files = json.loads(data)
        return _Answers(version, Target(*target), tuple((name, size, time) for name, size, time in files))

    def hold(self) -> bool:
        """Whether LLVM would be loaded from the same files."""
        return bool(self.files) and _states([name for name, *_ in self.files]) == self.files


@cache
def _answers() -> _Answers:
    key = _key_of_answers()
    data = None if key is None else object_cache.read(key)
    if data is not None and (found := _Answers.from_bytes(data)).hold():
        return found
    made = _Answers(native.compiler_version(), native.host_target(), _states(_loaded_from()))
    if key is not None and made.files:
        object_cache.write(key, made.to_bytes())
    return made


def _key_of_answers() -> str | None:
    """A key of processors and installations of llvmlite; None if the processor is unknown."""
    asked, spec = processor.identity(), find_spec("llvmlite")
    if asked is None or spec is None:
        return None
    return hashlib.sha256(repr((asked, processor.highest(), spec.origin, _compiler_source())).encode()).hexdigest()


def _loaded_from() -> list[str]:
    """The libraries of LLVM in this process, as Linux reports them."""
    if not _MAPPED.exists():
        return []
    names = {line.split(maxsplit=5)[-1].strip() for line in _MAPPED.read_text().splitlines()}
    return sorted(name for name in names if "llvm" in os.path.basename(name).lower())


def _states(names: Iterable[str]) -> tuple[tuple[str, int, int], ...]:
    """Size and time of files; those that are missing are left out."""
    found = [(name, Path(name).stat()) for name in names if Path(name).exists()]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in found)


def compiler_version() -> str:
    """Return a name for everything that determines the machine code of a text."""
    return _answers().version


@cache
def host_target() -> Target:
    """This machine; its code may call functions for missing instructions."""
    target = _answers().target
    if target.lacks_half:
        functions = Library([object_code(module_text(half_text()), target)])
        for name in HALF_FUNCTIONS:
            add_symbol(name, functions.address(name))
        functions.keep()
    return target


def library(text: str) -> Library:
    """Load the module of ``text``: from the cache, or compiled and stored there."""
    return Library([object_code(text, host_target())])


def object_code(text: str, target: Target) -> bytes:
    """The machine code of ``text``: from the cache, or compiled and stored there."""
    key = key_of(text, target)
    code = object_cache.read(key)
    if code is None:
        code = native.compile_object(text, target)
        object_cache.write(key, code)
    return code


def key_of(text: str, target: Target) -> str:
    """The cache key of ``text`` compiled for ``target``."""
    parts = (compiler_version(), _compiler_source(), target.triple, target.cpu, target.features, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _compiler_source() -> str:
    return hashlib.sha256(Path(native.__file__).read_bytes()).hexdigest()
