"""The same programs spelled for narrower machines give the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.kernels.test_kernels import data, reduced_rows
from tests.codegen.programs import elementwise, scalar_op
from tracecomp.codegen.kernels.program import emit_program
from tracecomp.codegen.text import native
from tracecomp.codegen.text.native import compile_object
from tracecomp.codegen.text.target import Target, vector_bits_of
from tracecomp.ir.program import Program
from tracecomp.ir.types import DType, float16, float32, float64, int64
from tracecomp.runtime import compiler
from tracecomp.runtime.executable import Executable

AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt"
NARROWER = {"avx2": ("haswell", AVX2), "baseline": ("x86-64", "")}

host_is_x86 = pytest.mark.skipif(not native.host_target().is_x86, reason="cross checks are between x86 machines")


def target_named(name: str) -> Target:
    cpu, features = NARROWER[name]
    return replace(native.host_target(), cpu=cpu, features=features, vector_bits=vector_bits_of(features))


def bits(program: Program, inputs: list[Any], out: Any, target: Target, patch: pytest.MonkeyPatch) -> Any:
    """The result of ``program`` compiled for ``target``."""
    result = np.zeros_like(out)
    with patch.context() as scope:
        scope.setattr(compiler, "host_target", lambda: target)
        executable = Executable(program)
    executable.run(inputs, [result], threads=1)
    return result


def same(program: Program, inputs: list[Any], out: Any, name: str, patch: pytest.MonkeyPatch) -> None:
    wide = bits(program, inputs, out, native.host_target(), patch)
    narrow = bits(program, inputs, out, target_named(name), patch)
    np.testing.assert_array_equal(wide, narrow)


@pytest.mark.sampled(4)
@host_is_x86
@pytest.mark.parametrize("name", NARROWER)
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "sin", "pow", "lgamma", "fmod", "expm1", "sqrt"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda t: t.short)
def test_functions(name: str, op: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    arity = 2 if op in ("pow", "fmod") else 1
    inputs = [np.exp(data(75, seed=k, dtype=dtype.numpy)) for k in range(arity)]
    same(elementwise(scalar_op(op, dtype), [dtype] * arity, dtype, 75), inputs, inputs[0], name, monkeypatch)


@host_is_x86
@pytest.mark.parametrize("name", NARROWER)
@pytest.mark.parametrize("lanes", [64, 8, 1])
def test_sums(name: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = reduced_rows(5, 200, lanes, 64, "add", float32, True)
    same(program, [data(5, 200)], np.zeros(5, np.float32), name, monkeypatch)


@host_is_x86
@pytest.mark.parametrize("case", [("add", int64), ("floordiv", int64), ("max", float32), ("mul", float16)], ids=str)
def test_arithmetic_without_wide_registers(case: tuple[str, DType], monkeypatch: pytest.MonkeyPatch) -> None:
    op, dtype = case
    name = "avx2" if dtype is float16 else "baseline"
    inputs = [(data(50, seed=k) * 10 + 20).astype(dtype.numpy) for k in range(2)]
    same(elementwise(scalar_op(op, dtype), [dtype] * 2, dtype, 50), inputs, inputs[0], name, monkeypatch)


def test_text_for_aarch64_is_accepted() -> None:
    """Code for another architecture cannot be run here, but LLVM must be able to compile it."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = native.cross_target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
    except RuntimeError:
        pytest.skip("this LLVM has no code generator for AArch64")
    program = reduced_rows(5, 200, 64, 64, "add", float32, True)
    assert compile_object(emit_program(program, target).text, target)[:4] == b"\x7fELF"
