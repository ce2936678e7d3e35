"""Conversions of half precision for processors without instructions for them, under the names of compilers' libraries.

LLVM calls these by name where code for x86-64 lacks F16C. They round to the nearest, ties to even, and make NaN quiet,
like the instructions.
"""

from __future__ import annotations

HALF_FUNCTIONS = ("__truncsfhf2", "__extendhfsf2", "__truncdfhf2")
"""The names that LLVM gives them: float to half, half to float, double to half."""

_NARROW = """
define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  ; from 2^-14 on: another bias, and half a unit added, less one where the last bit is even
  %moved = sub i32 %size, 939524096
  %kept = lshr i32 %moved, 13
  %odd = and i32 %kept, 1
  %up = add i32 %moved, 4095
  %rounded = add i32 %up, %odd
  %normal = lshr i32 %rounded, 13
  ; below: the sum with 0.5 has units of 2^-24
  %positive = bitcast i32 %size to float
  %sum = fadd float %positive, 5.0e-01
  %sum.bits = bitcast float %sum to i32
  %small = sub i32 %sum.bits, 1056964608
  %is.small = icmp ult i32 %size, 947912704
  %finite = select i1 %is.small, i32 %small, i32 %normal
  ; 65520 and more is infinite
  %is.large = icmp uge i32 %size, 1199566848
  %bounded = select i1 %is.large, i32 31744, i32 %finite
  %payload = lshr i32 %size, 13
  %payload.low = and i32 %payload, 511
  %quiet = or i32 %payload.low, 32256
  %is.nan = icmp ugt i32 %size, 2139095040
  %found = select i1 %is.nan, i32 %quiet, i32 %bounded
  %whole = or i32 %found, %sign
  %word = trunc i32 %whole to i16
  %result = bitcast i16 %word to half
  ret half %result
}
"""
_WIDEN = """
define float @__extendhfsf2(half %x) {
  %word = bitcast half %x to i16
  %bits = zext i16 %word to i32
  %high = shl i32 %bits, 16
  %sign = and i32 %high, -2147483648
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %endless = or i32 %moved, 2139095040
  %quiet = or i32 %endless, 4194304
  %count = uitofp i32 %size to float
  %small = fmul float %count, 0x3E70000000000000
  %small.bits = bitcast float %small to i32
  %is.small = icmp ult i32 %size, 1024
  %is.endless = icmp uge i32 %size, 31744
  %is.nan = icmp ugt i32 %size, 31744
  %finite = select i1 %is.small, i32 %small.bits, i32 %normal
  %bounded = select i1 %is.endless, i32 %endless, i32 %finite
  %found = select i1 %is.nan, i32 %quiet, i32 %bounded
  %whole = or i32 %found, %sign
  %result = bitcast i32 %whole to float
  ret float %result
}
"""
_FROM_DOUBLE = """
declare double @llvm.fabs.f64(double)
define half @__truncdfhf2(double %x) {
  ; to float first, cut off, with a last bit that says so: rounding again is right then
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %back.size = call double @llvm.fabs.f64(double %back)
  %beyond = fcmp ogt double %back.size, %size
  %less = zext i1 %beyond to i32
  %bits = bitcast float %near to i32
  %cut = sub i32 %bits, %less
  %marked = or i32 %cut, 1
  %chosen = select i1 %inexact, i32 %marked, i32 %bits
  %float = bitcast i32 %chosen to float
  %result = call half @__truncsfhf2(float %float)
  ret half %result
}
"""


def half_text() -> str:
    """The definitions."""
    return _NARROW + _WIDEN + _FROM_DOUBLE
