"""The little that scheduling and its cost models know of a machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ZEN4 = ("AuthenticAMD", "25")
"""Vendor and family of the processors with 512-bit registers and 256-bit arithmetic."""


@dataclass(frozen=True, slots=True)
class Machine:
    """``vector_bytes`` of one SIMD register, how many ``registers``, cache sizes in bytes.

    ``in_halves``: arithmetic on whole registers takes two steps, so that on half of one it takes half the time.
    """

    vector_bytes: int
    registers: int
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    l3_bytes: int = 32 * 1024 * 1024
    in_halves: bool = False

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one register."""
        return self.vector_bytes // itemsize


@cache
def host() -> Machine:
    """The machine this process runs on."""
    cpu = _cpu()
    flags = set(cpu.get("flags", "").split())
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
        return Machine(64, 32, in_halves=(cpu.get("vendor_id"), cpu.get("cpu family")) == _ZEN4)
    if "avx2" in flags:
        return Machine(32, 16)
    return Machine(16, 32 if platform.machine() in ("arm64", "aarch64") else 16)


def _cpu() -> dict[str, str]:
    """What the system says of the first processor, by name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf8")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
