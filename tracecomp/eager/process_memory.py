"""Memory that processes share: what ``share_memory_`` moves tensors to, and how it reaches another process.

The memory is a file without a name: it is not listed in any folder, and the system frees it with its last user, however
that ends. Forked processes inherit it. Other ones get its descriptor from ``multiprocessing``.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, SupportsIndex

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.forks import in_child
from tracecomp.eager.meta import MetaArray
from tracecomp.eager.modes import MEMORY, modes, module_changes
from tracecomp.eager.room import settled
from tracecomp.eager.tensor_base import TensorBase

Array = np.ndarray[Any, Any]
_ALIGNMENT = 64
"""Bytes of a cache line: processes that write neighbouring tensors do not wait for each other."""
_BLOCK_BYTES = 1 << 20
"""Small tensors share blocks of this size: each block takes file descriptors, which are few."""


class Block(mmap.mmap):
    """Memory that other processes can map."""

    fd: int
    used: int

    @classmethod
    def of(cls, fd: int, size: int) -> Block:
        """The memory behind a descriptor, which the block closes at its end."""
        block = cls(fd, size)
        block.fd, block.used = fd, 0
        for kind, reduce in ((Elements, _reduce), (cls, _reduce_block)):
            _transport().ForkingPickler.register(kind, reduce)
        _BLOCKS[_key(fd)] = block
        weakref.finalize(block, os.close, fd)
        return block

    def take(self, size: int) -> int | None:
        """Reserve ``size`` bytes and return their offset; None if the block has too few left."""
        start = -(-self.used // _ALIGNMENT) * _ALIGNMENT
        if start + size > len(self):
            return None
        self.used = start + size
        return start


_BLOCKS: weakref.WeakValueDictionary[tuple[int, int], Block] = weakref.WeakValueDictionary()
"""The blocks of this process by file: memory that arrives twice is mapped once."""
_filled: list[weakref.ref[Block]] = []
"""The block that the next small tensors are put in, which they keep alive. Forked processes begin others."""


@cache
def _transport() -> Any:
    """How ``multiprocessing`` pickles for other processes: loaded late, since few programs use it."""
    return import_module("multiprocessing.reduction")


def _key(fd: int) -> tuple[int, int]:
    file = os.fstat(fd)
    return file.st_dev, file.st_ino


def _new_block(size: int) -> Block:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tracecomp", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return Block.of(fd, size)


def _allocate(size: int) -> tuple[Block, int]:
    """Shared memory for ``size`` bytes: a block, and where they begin in it."""
    if sys.platform == "win32":
        raise NotImplementedError("share_memory_(): shared memory is not supported on Windows")
    if size > _BLOCK_BYTES // 8:
        return _new_block(size), 0
    block = _filled[0]() if _filled else None
    start = None if block is None else block.take(size)
    if block is None or start is None:
        block = _new_block(_BLOCK_BYTES)
        _filled[:] = [weakref.ref(block)]
        start = block.take(size)
        assert start is not None
    return block, start


in_child(_filled.clear)


def block_of(array: Array) -> Block | None:
    """Return the shared memory that holds an array's elements; None for private memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, Block) else None


def share(tensors: Iterable[TensorBase]) -> None:
    """Move the memory of ``tensors``, and all views of it, to memory that other processes can map."""
    waiting = [t for t in tensors if type(t._data) is not MetaArray and block_of(t._data) is None]
    if not waiting:
        return
    if modes.recorder is not None:
        modes.recorder.refuse_here("moves tensors to shared memory by share_memory_()", Section.EXCLUDE)
    for group in _holders(waiting):
        _move(group)
    module_changes.note(MEMORY)  # recordings check the addresses of memory again


def _holders(tensors: Sequence[TensorBase]) -> list[list[TensorBase]]:
    """The tensors over the memory of each of ``tensors``. No table lists a tensor's views: all objects are searched."""
    groups: dict[int, dict[int, TensorBase]] = {}
    for t in tensors:
        group = groups.setdefault(id(t._shared_storage().memory), {})
        link: TensorBase | None = t
        while link is not None:
            group[id(link)] = link
            link = link._base
    for t in gc.get_objects():
        if issubclass(type(t), TensorBase) and (storage := getattr(t, "_storage", None)) is not None:
            groups.get(id(storage.memory), {})[id(t)] = t
    return [
        [t for t in group.values() if t._storage is not None and id(t._storage.memory) == memory]
        for memory, group in groups.items()
    ]


def _move(group: Sequence[TensorBase]) -> None:
    """Give tensors over one memory shared memory of the same contents."""
    ends = [np.lib.array_utils.byte_bounds(settled(t)) for t in group if t._data.size]
    low, high = min((a for a, _ in ends), default=0), max((b for _, b in ends), default=0)
    block, start = _allocate(high - low)
    if high > low:
        block[start : start + high - low] = ctypes.string_at(low, high - low)
    for t in group:
        old = t._data
        at = start + (np.lib.array_utils.byte_bounds(old)[0] - low if old.size else 0)
        at += sum((1 - n) * s for n, s in zip(old.shape, old.strides, strict=True) if s < 0 and old.size)
        t._data = np.ndarray(old.shape, old.dtype, block, at, old.strides)
        t._data.flags.writeable = old.flags.writeable
        t._shared_storage().share()  # other processes may write it


class Elements:
    """The elements of a tensor in shared memory, as they are pickled: other processes of ours get the memory itself."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.array.__reduce_ex__(protocol)


def _reduce(elements: Elements) -> Any:
    array = elements.array
    block = block_of(array)
    assert block is not None
    start = array.__array_interface__["data"][0] - np.frombuffer(block, np.uint8).__array_interface__["data"][0]
    return _over, (block, start, array.shape, array.dtype, array.strides)


def _over(block: Block, start: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> Array:
    return np.ndarray(shape, dtype, block, start, strides)


def _reduce_block(block: Block) -> Any:
    # Once for all tensors of a pickle, which knows its objects: a new process takes no descriptor twice.
    return _mapped, (_transport().DupFd(block.fd), len(block))


def _mapped(fd: Any, size: int) -> Block:
    """The memory of another process."""
    found = fd.detach()
    block = _BLOCKS.get(_key(found))
    if block is None:
        block = Block.of(found, size)
        block.used = size  # its owner knows which parts are free
    else:
        os.close(found)
    return block
