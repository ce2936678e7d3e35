"""LLVM's options for one module: long texts take less of its time, and no other module notices."""

from __future__ import annotations

import ctypes

import numpy as np

from tracecomp.codegen.text import native
from tracecomp.runtime.library import Library

SUMS = """
define void @sums(ptr %x, ptr %out, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %total = phi float [0.0, %entry], [%more, %loop]
  %row = mul i64 %i, 7
  %column = add i64 %row, 3
  %p = getelementptr float, ptr %x, i64 %row
  %q = getelementptr float, ptr %x, i64 %column
  %a = load float, ptr %p
  %b = load float, ptr %q
  %product = fmul float %a, %b
  %more = fadd float %total, %product
  %o = getelementptr float, ptr %out, i64 %i
  store float %more, ptr %o
  %next = add i64 %i, 1
  %ends = icmp eq i64 %next, %n
  br i1 %ends, label %done, label %loop
done:
  ret void
}
"""
LONG = SUMS + ";" * native.LONG_TEXT


def sums(code: bytes, x: np.ndarray) -> bytes:
    library = Library([code])
    out = np.empty(100, np.float32)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("sums"))
    run(x.ctypes.data, out.ctypes.data, len(out))
    return out.tobytes()


def test_long_texts_have_the_same_results_and_change_no_option() -> None:
    target = native.host_target()
    short = native.compile_object(SUMS, target)
    long = native.compile_object(LONG, target)
    assert native.compile_object(SUMS, target) == short
    x = np.random.default_rng(0).standard_normal(800).astype(np.float32)
    assert sums(long, x) == sums(short, x)
    assert native.compile_assembly(LONG, target) != native.compile_assembly(SUMS, target)
