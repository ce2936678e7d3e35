"""A compiled program apart from its source: machine code and what a call needs to know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise

from tracecomp.codegen.kernels.counted import emit_counted
from tracecomp.codegen.kernels.program import emit_program, memory_before_scratch
from tracecomp.codegen.text import native
from tracecomp.codegen.text.target import Target
from tracecomp.ir.program import Program, WhenStep, call_steps
from tracecomp.runtime import object_cache
from tracecomp.runtime.compiling import Compiling


@dataclass(frozen=True)
class Image:
    """``arrays`` a call takes, the first ``inputs`` of them read; bytes of memory for a call, and for each thread.

    ``prepared`` is where in a call's memory stands whether its preparation is done (None where there is none), which
    reads the inputs ``frozen``. ``checked`` code runs in guarded memory; ``written`` are the inputs that it updates.
    """

    objects: tuple[bytes, ...]
    inputs: int
    arrays: int
    memory_bytes: int
    thread_bytes: int
    labels: tuple[str, ...]
    parallel: bool
    prepared: int | None = None
    frozen: tuple[int, ...] = ()
    checked: bool = False
    written: tuple[int, ...] = ()

    @staticmethod
    def of(program: Program, profile: bool = False, target: Target | None = None) -> Image:
        """``program`` compiled for ``target`` (default: this machine), or found in the object cache."""
        target = target or native.host_target()
        with Compiling(target) as compiling:
            code = emit_program(program, target, profile, compiling.begin)
            objects = compiling.finish(code.modules[-1])
        return Image(
            objects=objects,
            inputs=len(program.inputs),
            arrays=len(program.inputs) + len(program.outputs) + profile,
            memory_bytes=memory_before_scratch(program) + code.shared_bytes,
            thread_bytes=code.private_bytes,
            labels=code.labels,
            parallel=code.parallel,
            prepared=program.prepared.position if program.prepared else None,
            frozen=_read_by_preparation(program),
            checked=program.checked,
            written=tuple(s.position for s in program.outputs if s.space == "input"),
        )

    @staticmethod
    def counted(program: Program) -> Image:
        """An elementwise ``program`` for any number of elements, which a last array of one int64 says."""
        target = native.host_target()
        code = emit_counted(program, target)
        return Image(
            objects=(object_cache.object_code(code.text, target),),
            inputs=len(program.inputs) + len(program.outputs),
            arrays=len(program.inputs) + len(program.outputs) + 1,
            memory_bytes=code.shared_bytes,
            thread_bytes=code.private_bytes,
            labels=code.labels,
            parallel=True,
        )

    def to_bytes(self) -> bytes:
        """A header line of JSON, then the objects."""
        header = {k: v for k, v in asdict(self).items() if k != "objects"} | {"sizes": [*map(len, self.objects)]}
        return b"".join((json.dumps(header).encode(), b"\n", *self.objects))

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """What ``to_bytes`` wrote."""
        header, _, rest = data.partition(b"\n")
        fields = json.loads(header)
        ends = [*accumulate(fields.pop("sizes"), initial=0)]
        objects = tuple(rest[start:end] for start, end in pairwise(ends))
        return Image(
            objects=objects, **{**fields, **{name: tuple(fields[name]) for name in ("labels", "frozen", "written")}}
        )


def _read_by_preparation(program: Program) -> tuple[int, ...]:
    steps = [s for s in program.steps if isinstance(s, WhenStep) and s.condition.slot is program.prepared]
    refs = [ref for call in call_steps((*steps,)) for ref in call.args]
    return tuple(sorted({ref.slot.position for ref in refs if ref.slot.space == "input"}))
