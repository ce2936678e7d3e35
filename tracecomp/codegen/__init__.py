"""Emit LLVM text and machine code from loop IR. Every decision was made in earlier stages.

Attributes such as ``codegen.emit_program`` are loaded on first use, as existing machine code runs without them.
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
