"""The machine code of a graph for one level of processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.codegen.calls import array_call, program_call
from tracecomp.codegen.math.half_library import half_text
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.threads import pauses, sync
from tracecomp.codegen.threads.entry import ENTRY
from tracecomp.compiled.program_files.levels import Level
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import Built, build
from tracecomp.passes.cost.machine import on
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.images import image_of
from tracecomp.runtime.linker import Linked, link
from tracecomp_runtime.machine_code import IMPORTS

Array = np.ndarray[Any, Any]
Json = Any


@dataclass
class Code:
    """A graph's program for one level."""

    built: Built
    image: Image
    linked: Linked

    def inputs(self, given: Sequence[tuple[str, object]], constant: Callable[[Array], str]) -> list[tuple[str, Any]]:
        """The first entries of the table: ``given``, with constants among and after them."""
        rest = iter(given)
        data = [i.data if i.role == "constant" else None for i in self.built.graph.inputs]
        places = [next(rest) if array is None else ("constant", constant(array)) for array in data]
        return [*places, *[("constant", constant(np.asarray(array))) for array in self.built.constants]]

    def described(self) -> dict[str, Json]:
        """Further data for the loader."""
        image, symbols = self.image, self.linked.symbols
        return {
            **self.linked.description(), "entry": symbols[ENTRY], "call": symbols[program_call.CALL],
            "worker": symbols[sync.WORKER], "memory_bytes": image.memory_bytes, "thread_bytes": image.thread_bytes,
            "parallel": image.parallel, "prepared": image.prepared, "labels": image.labels,
            "record": program_call.RECORD, "argument_row": program_call.ARGUMENT, "output_row": program_call.OUTPUT,
        }  # fmt: skip


def code_of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int], level: Level) -> Code:
    """A graph as machine code; every level is scheduled for its own kind of machine."""
    target = level.target
    with on(level.machine):
        built = build(graph, aliases, frozen=frozen)
    image = image_of(built.program, target=target)
    parts = (
        sync.shared_text(target),
        pauses.pause_text(target, hook=False),
        array_call.call_text(),
        program_call.call_text(),
    )
    shared = module_text(*parts)
    objects = [*image.objects, compiler.object_code(shared, target)]
    if target.lacks_half:
        objects.append(compiler.object_code(module_text(half_text()), target))
    linked = link(objects)
    if unknown := [name for name, _ in linked.imports if name not in IMPORTS]:
        raise CompileError(f"the code calls {', '.join(unknown)}; program files may not call them")
    return Code(built, image, linked)
