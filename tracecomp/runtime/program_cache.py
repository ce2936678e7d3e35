"""Compiled graphs on disk: a process that records the same graph as an earlier one loads it without passes or codegen.

A graph's key is its text, with the settings that change code, the machine, the compiler, numpy and this package's
sources. The entry has the image and the constants that passes created, which a call passes after its own arrays.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from operator import is_
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.ir.packed import content
from tracecomp.runtime import compiler, object_cache
from tracecomp.runtime.image import Image

Array = np.ndarray[Any, Any]

_ROOMS = ("base", "ir", "ops", "passes", "codegen", "runtime", "eager_kernels", "compiled")
"""Packages whose files determine a stored program, sub-folders included."""

_IMPORTED_NS = time.time_ns()


@dataclass(frozen=True)
class Stored:
    """An image and its arguments: each is the number of a given array, or a constant."""

    image: Image
    arguments: tuple[int | Array, ...]

    def to_bytes(self) -> bytes:
        """Serialize: the length of the header, the sources of arguments, the constants, then the image."""
        constants, arrays = io.BytesIO(), [a for a in self.arguments if not isinstance(a, int)]
        if arrays:  # numpy's archives take milliseconds, even empty ones
            np.savez(constants, *arrays)
        places = json.dumps([a if isinstance(a, int) else None for a in self.arguments]).encode()
        sizes = json.dumps([len(places), constants.tell()]).encode()
        return sizes + b"\n" + places + constants.getvalue() + self.image.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Stored:
        """Restore the result of ``to_bytes``."""
        sizes, _, rest = data.partition(b"\n")
        first, second = json.loads(sizes)
        constants = iter(_arrays(rest[first : first + second]) if second else ())
        places = [next(constants) if p is None else p for p in json.loads(rest[:first])]
        return Stored(Image.from_bytes(rest[first + second :]), tuple(places))


def _arrays(data: bytes) -> list[Array]:
    with np.load(io.BytesIO(data)) as found:
        return [found[name] for name in found.files]


def key_of(
    graph: Graph,
    machine: object,
    aliases: Mapping[int, int] | None = None,
    frozen: Set[int] = frozenset(),
    counted: bool = False,
) -> str:
    """The key of the program of ``graph``, with schedules for ``machine``.

    It includes source lines if a failed index check would name them. ``counted``: for any number of elements.
    """
    digest = hashlib.sha256()
    for i in graph.inputs:
        if i.data is not None:
            digest.update(np.ascontiguousarray(i.data).tobytes())
    checked = [n for n in graph.nodes if n.op.kind in ("gather", "scatter") and n in graph.origin]
    lines = [str(graph.origin[n].source) for n in checked]
    settings = (sorted((aliases or {}).items()), sorted(frozen), counted, config.code_key(), machine, _sources())
    return compiler.key_of(repr((_digest(graph), lines, digest.hexdigest(), settings)), compiler.host_target())


@dataclass(frozen=True)
class _Known:
    """The digest of a graph with this number of nodes and these ``ends``: others give another digest."""

    shape: tuple[str, int]
    ends: tuple[object, ...]
    digest: str


_digests: WeakKeyDictionary[Graph, _Known] = WeakKeyDictionary()
"""Digests of graphs: a program is looked for before it is compiled in the background, and when it is loaded."""


def _digest(graph: Graph) -> str:
    """A digest of the graph's content, without the elements of constants."""
    nodes = graph.nodes
    shape, ends = (graph.name, len(nodes)), (*graph.inputs, *graph.outputs, *nodes[-1:])  # nodes are added at the end
    known = _digests.get(graph)
    if known is None or known.shape != shape or len(known.ends) != len(ends) or not all(map(is_, known.ends, ends)):
        known = _Known(shape, ends, hashlib.sha256(content(graph).encode()).hexdigest())
        _digests[graph] = known
    return known.digest


def image_of(graph: Graph, machine: object, make: Callable[[], Image], counted: bool = False) -> Image:
    """The image of a graph without constants: stored by another process, or built by ``make``."""
    key = key_of(graph, machine, counted=counted)
    found = load(key)
    if found is not None:
        return found.image
    image = make()
    save(key, image, range(image.arrays))
    return image


_given: ContextVar[Mapping[str, bytes]] = ContextVar("tracecomp_given_programs", default=MappingProxyType({}))


@contextmanager
def given(programs: Mapping[str, bytes]) -> Iterator[None]:
    """Load the entries ``programs``, too, in a block."""
    token = _given.set(programs)
    try:
        yield
    finally:
        _given.reset(token)


def holds(key: str) -> bool:
    """Whether there is an entry under ``key``."""
    return object_cache.read(key) is not None


def load(key: str) -> Stored | None:
    """The entry under ``key``, if any."""
    data = _given.get().get(key) or object_cache.read(key)
    return None if data is None else Stored.from_bytes(data)


def save(key: str, image: Image, arguments: Sequence[int | Array]) -> None:
    """Store an image for later processes."""
    object_cache.write(key, Stored(image, tuple(arguments)).to_bytes())


@cache
def _sources() -> str:
    """A key of everything that determines programs: this package's files, Python and numpy.

    It uses the files' contents, because an edited file may have the same size and time. Reading them takes some 5 ms,
    once. If they differ from the running ones, or cannot be found, the key is unique.
    """
    root = Path(__file__).parents[1]
    files = sorted(found for room in _ROOMS for found in _files(root / room))
    digest = hashlib.sha256(repr((sys.version, np.__version__, [p[len(str(root)) :] for p, _ in files])).encode())
    for path, state in files:
        content = _content(path, state.st_size)
        digest.update(b"%d " % len(content) + content)
    if not files or max(state.st_ctime_ns for _, state in files) > _IMPORTED_NS:  # changed since this process started
        digest.update(os.urandom(16))
    return digest.hexdigest()


def _files(folder: Path | str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield sources in a folder and below with their text: ``pathlib`` takes four times as long."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir():
            yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path, entry.stat()


def _content(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)
