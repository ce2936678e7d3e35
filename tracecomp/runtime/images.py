"""Images of programs: their machine code, compiled or from the object cache, and the data that calls need."""

from __future__ import annotations

import tracecomp.codegen as codegen
from tracecomp.codegen.text.target import Target
from tracecomp.ir.program import Program, WhenStep, call_steps
from tracecomp.runtime import compiler
from tracecomp.runtime.compiling import Compiling
from tracecomp.runtime.image import Image


def image_of(program: Program, profile: bool = False, target: Target | None = None) -> Image:
    """Compile ``program`` for ``target`` (default: this machine)."""
    target = target or compiler.host_target()
    with Compiling(target) as compiling:
        code = codegen.emit_program(program, target, profile, compiling.begin)
        objects = compiling.finish(code.modules[-1])
    return Image(
        objects=objects,
        inputs=len(program.inputs),
        arrays=len(program.inputs) + len(program.outputs) + profile,
        memory_bytes=codegen.memory_before_scratch(program) + code.shared_bytes,
        thread_bytes=code.private_bytes,
        labels=code.labels,
        parallel=code.parallel,
        prepared=program.prepared.position if program.prepared else None,
        frozen=_read_by_preparation(program),
        checked=program.checked,
        written=tuple(s.position for s in program.outputs if s.space == "input"),
    )


def counted_image(program: Program) -> Image:
    """An elementwise ``program`` for any number of elements, given by a last array of one int64."""
    target = compiler.host_target()
    code = codegen.emit_counted(program, target)
    return Image(
        objects=(compiler.object_code(code.text, target),),
        inputs=len(program.inputs) + len(program.outputs),
        arrays=len(program.inputs) + len(program.outputs) + 1,
        memory_bytes=code.shared_bytes,
        thread_bytes=code.private_bytes,
        labels=code.labels,
        parallel=True,
    )


def _read_by_preparation(program: Program) -> tuple[int, ...]:
    steps = [s for s in program.steps if isinstance(s, WhenStep) and s.condition.slot is program.prepared]
    refs = [ref for call in call_steps((*steps,)) for ref in call.args]
    return tuple(sorted({ref.slot.position for ref in refs if ref.slot.space == "input"}))
