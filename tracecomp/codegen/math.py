"""Functions."""

from __future__ import annotations

from tracecomp.codegen.emitter import Emitter, Value
from tracecomp.errors import CompileError
from tracecomp.ir.types import DType


def emit(e: Emitter, op: str, args: list[Value]) -> Value:
    raise CompileError(f"no such function: {op}")


def nextafter_half(e: Emitter, a: Value, b: Value, dtype: DType) -> Value:
    raise CompileError("nextafter")


def integer_power(e: Emitter, a: Value, n: Value, signed: bool) -> Value:
    raise CompileError("pow")
