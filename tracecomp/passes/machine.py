"""The little that scheduling knows of a machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """``vector_bytes`` of one SIMD register, how many ``registers``, cache sizes in bytes."""

    vector_bytes: int
    registers: int
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    l3_bytes: int = 32 * 1024 * 1024

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one register."""
        return self.vector_bytes // itemsize


@cache
def host() -> Machine:
    """The machine this process runs on."""
    flags = _cpu_flags()
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
        return Machine(64, 32)
    if "avx2" in flags:
        return Machine(32, 16)
    return Machine(16, 32 if platform.machine() in ("arm64", "aarch64") else 16)


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf8")
    except OSError:
        return set()
    line = next((x for x in text.splitlines() if x.startswith("flags")), "")
    return set(line.split())
