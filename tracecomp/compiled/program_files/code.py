"""The machine code of a graph for one level of processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.codegen.calls import array_call, program_call
from tracecomp.codegen.math.half_library import half_text
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.threads import pauses, sync
from tracecomp.codegen.threads.entry import ENTRY
from tracecomp.compiled.program_files.levels import Level
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import on
from tracecomp.runtime import compiler, program_cache
from tracecomp.runtime.images import image_of
from tracecomp.runtime.linker import Linked, link
from tracecomp.runtime.program_cache import Stored
from tracecomp_runtime.machine_code import IMPORTS

Array = np.ndarray[Any, Any]
Json = Any


@dataclass
class Code:
    """A graph's program for one level."""

    stored: Stored
    linked: Linked

    def inputs(self, given: Sequence[tuple[str, object]], constant: Callable[[Array], str]) -> list[tuple[str, Any]]:
        """The first entries of the table: ``given``, with constants among and after them."""
        return [given[a] if isinstance(a, int) else ("constant", constant(a)) for a in self.stored.arguments]

    def described(self) -> dict[str, Json]:
        """Further data for the loader."""
        image, symbols = self.stored.image, self.linked.symbols
        return {
            **self.linked.description(), "entry": symbols[ENTRY], "call": symbols[program_call.CALL],
            "worker": symbols[sync.WORKER], "memory_bytes": image.memory_bytes, "thread_bytes": image.thread_bytes,
            "parallel": image.parallel, "prepared": image.prepared, "labels": image.labels,
            "record": program_call.RECORD, "argument_row": program_call.ARGUMENT, "output_row": program_call.OUTPUT,
        }  # fmt: skip


def code_of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int], level: Level) -> Code:
    """A graph as machine code; every level is scheduled for its own kind of machine."""
    return _linked(_compiled(graph, aliases, frozen, level), level)


def cached_code_of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int], level: Level) -> Code:
    """``code_of``, from the disk where another process left it: loading takes a tenth of the time of compiling."""
    if Dump(graph.name).folder is not None:
        return code_of(graph, aliases, frozen, level)
    # The loops of untrusted files are verified, so their entries are separate from those of other programs.
    kind = ("program file", config.current().verify, level.machine, level.target)
    key = program_cache.key_of(graph, kind, aliases, frozen)
    stored = program_cache.load(key)
    if stored is None:
        stored = _compiled(graph, aliases, frozen, level)
        program_cache.save(key, stored.image, stored.arguments)
    return _linked(stored, level)


def _compiled(graph: Graph, aliases: Mapping[int, int], frozen: Set[int], level: Level) -> Stored:
    with on(level.machine):
        built = build(graph, aliases, frozen=frozen)
    given = count()
    arguments = [np.asarray(i.data) if i.role == "constant" else next(given) for i in built.graph.inputs]
    return Stored(image_of(built.program, target=level.target), (*arguments, *map(np.asarray, built.constants)))


def _linked(stored: Stored, level: Level) -> Code:
    target = level.target
    parts = (
        sync.shared_text(target),
        pauses.pause_text(target, hook=False),
        array_call.call_text(),
        program_call.call_text(),
    )
    shared = module_text(*parts)
    objects = [*stored.image.objects, compiler.object_code(shared, target)]
    if target.lacks_half:
        objects.append(compiler.object_code(module_text(half_text()), target))
    linked = link(objects)
    if unknown := [name for name, _ in linked.imports if name not in IMPORTS]:
        raise CompileError(f"the code calls {', '.join(unknown)}; program files may not call them")
    return Code(stored, linked)
