"""Compiled graphs on disk: a process that records what another has compiled loads it without passes or codegen.

A graph's key is its text, with the settings that change code, the machine, the compiler, numpy and this package's
sources. What is stored beside the image are the constants that passes made, which a call passes after its own arrays.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.codegen.text import native
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import object_cache as objects
from tracecomp.runtime.image import Image

Array = np.ndarray[Any, Any]

_ROOMS = ("base", "ir", "ops", "passes", "codegen", "runtime", "compiled")
"""Whose files decide what a stored program is, sub-folders included."""

_IMPORTED_NS = time.time_ns()


@dataclass(frozen=True)
class Stored:
    """An image and its arguments: each is the number of a given array, or a constant."""

    image: Image
    arguments: tuple[int | Array, ...]

    def to_bytes(self) -> bytes:
        """The length of what follows, where arguments come from, the constants, then the image."""
        constants = io.BytesIO()
        np.savez(constants, *[a for a in self.arguments if not isinstance(a, int)])
        places = json.dumps([a if isinstance(a, int) else None for a in self.arguments]).encode()
        sizes = json.dumps([len(places), constants.tell()]).encode()
        return sizes + b"\n" + places + constants.getvalue() + self.image.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Stored:
        """What ``to_bytes`` wrote."""
        sizes, _, rest = data.partition(b"\n")
        first, second = json.loads(sizes)
        with np.load(io.BytesIO(rest[first : first + second])) as found:
            constants = iter([found[name] for name in found.files])
        places = [next(constants) if p is None else p for p in json.loads(rest[:first])]
        return Stored(Image.from_bytes(rest[first + second :]), tuple(places))


def key_of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int]) -> str:
    """The name under which what becomes of ``graph`` is stored.

    Source lines belong to it where a failed index check would name them.
    """
    digest = hashlib.sha256()
    for i in graph.inputs:
        if i.data is not None:
            digest.update(np.ascontiguousarray(i.data).tobytes())
    checked = [n for n in graph.nodes if n.op.kind in ("gather", "scatter") and n in graph.origin]
    lines = [str(graph.origin[n].source) for n in checked]
    settings = (sorted(aliases.items()), sorted(frozen), config.code_key(), host(), _sources())
    return objects.key_of(repr((print_graph(graph), lines, digest.hexdigest(), settings)), native.host_target())


def load(key: str) -> Stored | None:
    """What was stored under ``key``, if anything."""
    data = objects.read(key)
    return None if data is None else Stored.from_bytes(data)


def save(key: str, image: Image, arguments: Sequence[int | Array]) -> None:
    """Store an image for later processes."""
    objects.write(key, Stored(image, tuple(arguments)).to_bytes())


@cache
def _sources() -> str:
    """Tells one state of what decides about programs from another: this package's files, Python and numpy.

    The files' contents, because an edited file may have the size and the time that it had. Reading them takes some 5
    ms, once. Where they are not the ones that run, or cannot be found, the answer is like no other.
    """
    root = Path(__file__).parents[1]
    files = sorted(p for room in _ROOMS for p in (root / room).rglob("*.py"))
    digest = hashlib.sha256(repr((sys.version, np.__version__, [str(p.relative_to(root)) for p in files])).encode())
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    if not files or max(p.stat().st_ctime_ns for p in files) > _IMPORTED_NS:  # changed since this process began
        digest.update(os.urandom(16))
    return digest.hexdigest()
