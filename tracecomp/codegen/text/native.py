"""Compile LLVM text to machine code in this process: the only module that uses llvmlite, which is loaded when needed.

LLVM does instruction selection and register allocation; none of its optimising passes run.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import Any

from tracecomp.base.errors import CompileError
from tracecomp.base.interrupts import uninterrupted
from tracecomp.codegen.text.target import FEATURES, Target, vector_bits_of
from tracecomp_runtime import processor

CODE_LEVEL = 2
"""LLVM's default effort for instruction selection and register allocation; no optimising pass runs at any level."""
LONG_TEXT = 2**17
"""Characters of a module from which on LLVM does not rewrite the induction variables of loops.

The rewriting takes 40 % of LLVM's time for densenet121's training step (11.2 s with it, 6.9 s without). Modules of this
length belong to large programs, which run as fast without it: 0.97 to 1.07 of the time before, for 32 networks (AMD
EPYC, Zen 4). Small programs may lose: attention written by hand takes 6 % longer.
"""
_numbers = count()
_BYTES, _BYTES_PER_CHARACTER = 2**25, 400
"""Most memory that LLVM needs for a module. Measured were 16 MB, and 280 bytes for each character of a function."""


@cache
def _binding() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # llvmlite guards every call with this lock.
    _leave_free(llvm.ffi.lib._lock)
    _finish_before_forks(llvm.ffi.lib._lock)
    return llvm


def _leave_free(lock: Any) -> None:
    """Prevent Ctrl-C from leaving ``lock`` acquired, for which every other thread would wait forever.

    Its ``__enter__`` and ``__exit__`` are written in Python. An interrupt can arrive before the acquisition is
    recorded, or before the release. The C functions of the inner lock have no such moment. They skip callbacks
    registered by other libraries, so a lock with callbacks stays unchanged.
    """

    class Whole(type(lock)):  # type: ignore[misc]
        @property
        def __enter__(self) -> Any:
            return super().__enter__ if self._cblist else self._lock.__enter__

        @property
        def __exit__(self) -> Any:
            return super().__exit__ if self._cblist else self._lock.__exit__

    lock.__class__ = Whole


def _finish_before_forks(lock: Any) -> None:
    """Make forks wait for calls of LLVM: a child could neither continue them nor acquire the lock of a missing
    thread."""
    if hasattr(os, "register_at_fork"):
        # Acquired during the fork: otherwise the child could inherit the lock in the state of a thread that it does not
        # have.
        release = partial(lock.__exit__, None, None, None)
        os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


@cache
def compiler_version() -> str:
    """Return a name for everything that determines the machine code of a text."""
    import llvmlite

    # Part of the object cache's key: another LLVM compiles the same text differently.
    return f"llvmlite {llvmlite.__version__}, LLVM {_binding().llvm_version_info}, level {CODE_LEVEL}"


@cache
def host_target() -> Target:
    """This machine, or the level that limits it (``TRACECOMP_CPU``)."""
    llvm = _binding()
    if processor.highest() and processor.levels()[0] in FEATURES:
        return cross_target(llvm.get_process_triple(), "x86-64", FEATURES[processor.levels()[0]])
    features = llvm.get_host_cpu_features().flatten()
    return cross_target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def cross_target(triple: str, cpu: str, features: str) -> Target:
    """A machine by LLVM's names; RuntimeError when this LLVM has no code generator for it."""
    machine = _machine(triple, cpu, features)
    return Target(triple, str(machine.target_data), cpu, features, vector_bits_of(features))


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    llvm = _binding()
    if triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    # Position independent and small: all parts of a program are within 2 GB, so that calls are direct.
    return target.create_target_machine(cpu=cpu, features=features, opt=CODE_LEVEL, reloc="pic", codemodel="small")


def target_machine(target: Target) -> Any:
    return _machine(target.triple, target.cpu, target.features)


def _need_memory(size: int) -> None:
    """Raise MemoryError unless LLVM can allocate its memory for a text or code of ``size`` bytes.

    LLVM ends the process when an allocation fails, and so does the C library when a thread first uses LLVM.
    """
    nbytes = _BYTES + _BYTES_PER_CHARACTER * size
    try:
        mmap.mmap(-1, nbytes).close()
    except OSError:
        message = f"compile: {nbytes >> 20} MB of memory are needed to compile {size} characters. Free memory, or raise"
        raise MemoryError(f"{message} the limit of the process") from None


def _parse(text: str, target: Target) -> Any:
    llvm = _binding()
    _need_memory(len(text))
    try:
        # A separate context, freed with the module.
        module = llvm.parse_assembly(text, llvm.create_context())  # LLVM's global context never frees modules' data
        module.triple = target.triple
        module.data_layout = target.data_layout
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refuses the emitted text: {error}") from error
    return module


def compile_object(text: str, target: Target) -> bytes:
    """Object code of a module's text."""
    with uninterrupted, _options(text):
        return bytes(target_machine(target).emit_object(_parse(text, target)))


def compile_assembly(text: str, target: Target) -> str:
    """The same code as readable assembly."""
    with uninterrupted, _options(text):
        return str(target_machine(target).emit_assembly(_parse(text, target)))


@contextmanager
def _options(text: str) -> Iterator[None]:
    """A block in which LLVM compiles long texts without loop strength reduction (see ``LONG_TEXT``).

    The option belongs to the process. LLVM's lock keeps other users of llvmlite out of the block.
    """
    if len(text) < LONG_TEXT:
        yield
        return
    llvm = _binding()
    with llvm.ffi.lib._lock:
        llvm.set_option("tracecomp", "-disable-lsr=true")
        try:
            yield
        finally:
            llvm.set_option("tracecomp", "-disable-lsr=false")


class Linked:
    """Objects loaded into this process by LLVM's JITLink, which may call each other and the functions ``symbols``.

    Each object is in one piece of memory: otherwise code and its constants could be too far apart.
    """

    def __init__(self, objects: Sequence[bytes], target: Target, symbols: Mapping[str, int]) -> None:
        _need_memory(sum(map(len, objects)))
        with uninterrupted:
            self._jit, self._name = _jit(target), f"tracecomp{next(_numbers)}"
            builder = _binding().JITLibraryBuilder()
            for code in objects:
                builder.add_object_img(code)
            for name, address in symbols.items():
                builder.import_symbol(name, address)
            # Functions of the C library are found in the process.
            self._held = [builder.add_current_process().link(self._jit, self._name)]

    def address(self, name: str) -> int:
        """The address of a function; KeyError if it does not exist."""
        with uninterrupted:
            try:
                found = self._jit.lookup(self._name, name)
            except RuntimeError as error:
                raise KeyError(name) from error
            self._held.append(found)  # a looked-up object is unloaded with its first holder
            return int(found[name])

    @property
    def holders(self) -> Sequence[object]:
        """Objects that keep the code in memory while any of them is referenced."""
        return self._jit, *self._held


@dataclass
class _Loader:
    """A loader of objects with LLVM's JITLink, with the number of objects it has loaded."""

    jit: Any
    loads: int = 0


_LOADS = 8
"""Objects per loader. A loader keeps some 9 KB of each unloaded object; it takes 150 KB itself, and is freed with its
last one."""

_loaders: dict[Target, _Loader] = {}


def _jit(target: Target) -> Any:
    found = _loaders.get(target)
    # A loader never returns all memory of an object; starting a new one regularly bounds the loss.
    if found is None or found.loads == _LOADS:
        jit = _binding().create_lljit_compiler(target_machine(target), use_jit_link=True, suppress_errors=True)
        found = _loaders[target] = _Loader(jit)
    found.loads += 1
    return found.jit
