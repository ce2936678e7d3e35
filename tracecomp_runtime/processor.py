"""Features of the processor, from ``cpuid``: systems and emulators do not always report them correctly."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

from tracecomp_runtime.machine_code import executable

LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""Levels of x86-64, the best first, as the psABI defines them."""

_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""push rbx; eax = first argument; ecx = second; cpuid; the third points to where eax, ebx, ecx, edx go; pop rbx; ret"""

_XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 4809d0 c3")
"""xor ecx, ecx; xgetbv; edx:eax as one word; ret"""

# leaf, register (eax, ebx, ecx, edx), bit
_V2 = {"sse3": (1, 2, 0), "ssse3": (1, 2, 9), "cx16": (1, 2, 13), "sse4.1": (1, 2, 19), "sse4.2": (1, 2, 20),
       "popcnt": (1, 2, 23)}  # fmt: skip
_V3 = {"fma": (1, 2, 12), "movbe": (1, 2, 22), "osxsave": (1, 2, 27), "avx": (1, 2, 28), "f16c": (1, 2, 29),
       "bmi1": (7, 1, 3), "avx2": (7, 1, 5), "bmi2": (7, 1, 8), "lzcnt": (0x80000001, 2, 5)}  # fmt: skip
_V4 = {"avx512f": (7, 1, 16), "avx512dq": (7, 1, 17), "avx512cd": (7, 1, 28), "avx512bw": (7, 1, 30),
       "avx512vl": (7, 1, 31)}  # fmt: skip
_YMM, _ZMM = 0x6, 0xE6
"""The parts of registers that the system has to save for AVX and AVX-512 (bits of XCR0)."""


def highest() -> str:
    """Return the level that code must not exceed (``TRACECOMP_CPU``), empty without a limit."""
    return os.environ.get("TRACECOMP_CPU", "")


@cache
def levels() -> tuple[str, ...]:
    """Return the levels whose code this process may run, the best first; empty except on x86-64 and AArch64."""
    found = _supported()
    return found[found.index(highest()) :] if highest() in found else found


def _supported() -> tuple[str, ...]:
    if platform.machine().lower() in ("aarch64", "arm64"):
        return ("aarch64",)
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    if not _has(_V2):
        return ()
    if not _has(_V3) or _saved() & _YMM != _YMM:
        return LEVELS[2:]
    return LEVELS if _has(_V4) and _saved() & _ZMM == _ZMM else LEVELS[1:]


def _has(features: dict[str, tuple[int, int, int]]) -> bool:
    return all(_registers(leaf)[register] >> bit & 1 for leaf, register, bit in features.values())


_ASKED = ((0, 0), (1, 0), (7, 0), (7, 1), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0), (0x80000001, 0),
          (0x80000008, 0))  # fmt: skip
"""Leaves, and their parts, that describe features and models."""
_OF_THIS_CORE = {(1, 0): 1, (0xD, 1): 1}
"""Registers in them that differ between cores, or by current use."""


def identity() -> tuple[int, ...] | None:
    """A key of processors whose code may differ; None without ``cpuid``."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    answers = [v for key in _ASKED for n, v in enumerate(_registers(*key)) if _OF_THIS_CORE.get(key) != n]
    return *answers, _saved() if _has({"osxsave": _V3["osxsave"]}) else 0


@cache
def _registers(leaf: int, part: int = 0) -> tuple[int, ...]:
    """The result of ``cpuid``; zeros for leaves beyond the last."""
    code = executable(_CPUID)
    found = (ctypes.c_uint32 * 4)()
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(code.address)
    ask(leaf & 0x80000000, 0, found)
    if found[0] < leaf:
        return (0, 0, 0, 0)
    ask(leaf, part, found)
    return tuple(found)


@cache
def _saved() -> int:
    code = executable(_XGETBV)
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(code.address)())
