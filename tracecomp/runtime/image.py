"""A compiled program apart from its source: machine code and what a call needs to know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tracecomp.codegen import native
from tracecomp.codegen.program import emit_program
from tracecomp.ir.program import Program
from tracecomp.runtime import cache


@dataclass(frozen=True)
class Image:
    """``arrays`` a call takes, the first ``inputs`` of them read; bytes of memory for a call, and for each thread."""

    code: bytes
    inputs: int
    arrays: int
    memory_bytes: int
    thread_bytes: int
    labels: tuple[str, ...]
    parallel: bool

    @staticmethod
    def of(program: Program, profile: bool = False) -> Image:
        """``program`` compiled for this machine, or found in the object cache."""
        target = native.host_target()
        code = emit_program(program, target, profile)
        return Image(
            code=cache.object_code(code.text, target),
            inputs=len(program.inputs),
            arrays=len(program.inputs) + len(program.outputs) + profile,
            memory_bytes=-(-program.arena_bytes // 64) * 64 + code.shared_bytes,
            thread_bytes=code.private_bytes,
            labels=code.labels,
            parallel=code.parallel,
        )

    def to_bytes(self) -> bytes:
        """A header line of JSON, then the machine code."""
        header = {k: v for k, v in asdict(self).items() if k != "code"}
        return json.dumps(header).encode() + b"\n" + self.code

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """What ``to_bytes`` wrote."""
        header, _, code = data.partition(b"\n")
        fields = json.loads(header)
        return Image(code=code, **{**fields, "labels": tuple(fields["labels"])})
