"""The system's description of the processor: instruction sets, registers, caches.

Linux provides ``/proc/cpuinfo`` and ``/sys``, and ``sysconf`` if a container hides the latter; macOS provides
``sysctlbyname``. Missing or implausible values are left out, so that the caller keeps a default.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tracecomp_runtime.processor import highest

PLAUSIBLE = {1: (8 << 10, 1 << 20), 2: (64 << 10, 256 << 20), 3: (256 << 10, 4 << 30)}
"""Plausible sizes in bytes of a cache of each level. Some virtual machines report caches of 0 or 2^31 bytes."""

SYSCONF = {1: (188, 189, 190), 2: (191, 192, 193), 3: (194, 195, 196)}
"""glibc's numbers for size, ways and line of the data caches, by level (``_SC_LEVEL1_DCACHE_SIZE`` and so on)."""

_ZEN4 = ("AuthenticAMD", "25")
"""Vendor and family of the processors with 512-bit registers and 256-bit arithmetic."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A data cache: its size, ways and line (0: not known), and how many processors share it."""

    nbytes: int
    ways: int = 0
    line_bytes: int = 0
    sharers: int = 1


@dataclass(frozen=True, slots=True)
class Processor:
    """``name`` is the vendor's; ``caches`` go by level."""

    name: str
    vector_bytes: int
    registers: int
    in_halves: bool
    caches: dict[int, Cache]


@cache
def read() -> Processor:
    """The first processor of this system."""
    cpu, arm = _cpuinfo(), platform.machine().lower() in ("arm64", "aarch64")
    # An emulator may show the description of the machine that it runs on.
    flags = set() if arm else set(cpu.get("flags", "").split())
    flags -= {"x86-64-v2": {"avx2", "avx512f"}, "x86-64-v3": {"avx512f"}}.get(highest(), set())
    caches = {level: c for level, c in _caches().items() if PLAUSIBLE[level][0] <= c.nbytes <= PLAUSIBLE[level][1]}
    name = _arm_name(cpu) if arm else cpu.get("model name", "")
    name = name or _sysctl_text("machdep.cpu.brand_string") or platform.processor() or "unknown"
    # All four are required: generated code uses masks (VL), bytes and halves (BW), and 64-bit integers (DQ) at will.
    # Knights Landing has F alone, and is scheduled as AVX2.
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
        # Zen 4 runs a 512-bit instruction as two halves. Family 25 is Zen 3 too, but it has no AVX-512 and does not
        # reach this line.
        in_halves = (cpu.get("vendor_id"), cpu.get("cpu family")) == _ZEN4
        return Processor(name, 64, 32, in_halves, caches)
    if "avx2" in flags:
        # VEX encodings name 16 registers; AVX-512 and AArch64 have 32.
        return Processor(name, 32, 16, False, caches)
    return Processor(name, 16, 32 if arm else 16, False, caches)


_ARM_CORES = {
    ("0x41", "0xd03"): "Cortex-A53", ("0x41", "0xd08"): "Cortex-A72", ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1", ("0x41", "0xd40"): "Neoverse V1", ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2",
    **{("0x61", f"0x{part:03x}"): "Apple M1" for part in (0x22, 0x23, 0x24, 0x25, 0x28, 0x29)},
    **{("0x61", f"0x{part:03x}"): "Apple M2" for part in (0x32, 0x33, 0x34, 0x35, 0x38, 0x39)},
}  # fmt: skip
"""Names of cores by implementer and part, as Linux reports them (its ``arch/arm64/include/asm/cputype.h``)."""


def _arm_name(cpu: dict[str, str]) -> str:
    """The name of a core, or its numbers, which distinguish records of measurements; empty if Linux reports neither."""
    maker, part = cpu.get("CPU implementer", ""), cpu.get("CPU part", "")
    return _ARM_CORES.get((maker, part)) or (f"Arm core {maker} {part}" if maker else "")


def key() -> str:
    """Name of the kind of processor: all machines of a kind share one record of measurements."""
    cpu = _cpuinfo()
    # The vector width is part of the key: a hypervisor may hide AVX-512 from a processor of the same name.
    names = "cpu family", "model", "stepping", "CPU variant", "CPU revision"
    words = (read().name, *(cpu[name] for name in names if name in cpu))
    return " ".join((*words, platform.machine(), f"{8 * read().vector_bytes}-bit vectors")).strip()


@cache
def _cpuinfo() -> dict[str, str]:
    """Linux's description of the first processor, by name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf8")
    except OSError:
        return {}
    # Processors are separated by an empty line. The first describes all: its schedules are correct on the other cores
    # of a hybrid part too, only slower.
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _caches() -> dict[int, Cache]:
    if sys.platform == "darwin":
        return _from_sysctl()
    # sysfs first, because it reports how many processors share a cache; sysconf reports sizes alone.
    return _from_sysfs(Path("/sys/devices/system/cpu/cpu0/cache")) or _from_sysconf()


def _from_sysfs(folder: Path) -> dict[int, Cache]:
    """Linux's description of the caches that hold data."""
    found: dict[int, Cache] = {}
    for index in sorted(folder.glob("index*")):
        # Index files may disappear under a hypervisor. An unreadable one counts as missing.
        with suppress(OSError, ValueError):
            if _word(index / "type") in ("Data", "Unified"):
                level, nbytes = int(_word(index / "level")), _bytes(_word(index / "size"))
                sharers = len(_numbered(_word(index / "shared_cpu_list")))
                found[level] = Cache(nbytes, _count(index, "ways_of_associativity"), _line(index), max(sharers, 1))
    return {level: found[level] for level in found if level in PLAUSIBLE}


def _line(index: Path) -> int:
    return _count(index, "coherency_line_size")


def _count(index: Path, name: str) -> int:
    # Ways and line may be missing where the size is known; 0 keeps the default of ``Machine``.
    try:
        return int(_word(index / name))
    except (OSError, ValueError):
        return 0


def _word(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _bytes(text: str) -> int:
    """``48K`` as a number."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text and text[-1] in units else int(text)


def _numbered(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _from_sysconf() -> dict[int, Cache]:
    """The C library's values, which it reads from the processor."""
    found: dict[int, Cache] = {}
    if platform.libc_ver()[0] != "glibc":
        return found  # the numbers have other meanings elsewhere
    for level, numbers in SYSCONF.items():
        with suppress(OSError, ValueError):
            nbytes, ways, line = map(os.sysconf, numbers)
            found[level] = Cache(nbytes, max(ways, 0), max(line, 0))
    return found


def _from_sysctl() -> dict[int, Cache]:
    """macOS's description of the fast cores; it reports no third cache."""
    line = _sysctl_number("hw.cachelinesize")
    found: dict[int, Cache] = {}
    for level, names in ((1, ("l1dcachesize",)), (2, ("l2cachesize",)), (3, ("l3cachesize",))):
        # perflevel0 are the fast cores. Intel Macs have no such names and only the plain ones.
        sizes = [_sysctl_number(f"{stem}.{name}") for stem in ("hw.perflevel0", "hw") for name in names]
        nbytes = next(filter(None, sizes), 0)
        if nbytes:
            # Apple's second cache serves a cluster of cores. Sharing of the others is not reported, so they count as
            # private.
            sharers = _sysctl_number("hw.perflevel0.cpusperl2") if level == 2 else 1
            found[level] = Cache(nbytes, 0, line, max(sharers, 1))
    return found


def _sysctl_number(name: str) -> int:
    return int.from_bytes(_sysctl(name), sys.byteorder)


def _sysctl_text(name: str) -> str:
    return _sysctl(name).rstrip(b"\0").decode("utf8", "replace")


def _sysctl(name: str) -> bytes:
    """Return the value of a macOS name; empty elsewhere and for an unknown name."""
    libc, size = ctypes.CDLL(None), ctypes.c_size_t(256)
    # Linux on Arm reaches this line, as its cpuinfo names no model; its C library has no such function.
    if not hasattr(libc, "sysctlbyname"):
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    failed = libc.sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0))
    return b"" if failed else buffer.raw[: size.value]
