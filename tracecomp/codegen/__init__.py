"""Loop IR to LLVM text and machine code. Spelling only: every decision was taken before.

Who runs machine code that is there names what makes some here, as ``codegen.emit_program``: it is loaded when it is
first asked for.
"""

from __future__ import annotations

from tracecomp.base.lazy_names import later

__getattr__ = later(
    "tracecomp.codegen",
    {
        "emit_counted": "kernels.counted",
        "emit_program": "kernels.program",
        "memory_before_scratch": "kernels.program",
    },
)
