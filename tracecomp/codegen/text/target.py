"""The target machine of code generation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """LLVM's names for a processor, and the properties that codegen reads."""

    triple: str
    data_layout: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def lacks_half(self) -> bool:
        """Whether code calls functions to convert half precision (``codegen/math/half_library.py``)."""
        return self.is_x86 and "+f16c" not in self.features.split(",")

    @property
    def has_scalef(self) -> bool:
        """Whether multiplying by a power of two is one instruction."""
        return self.is_x86 and self.vector_bits == 512


_V2 = "+cx16,+popcnt,+sahf,+sse3,+ssse3,+sse4.1,+sse4.2"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
FEATURES = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
}
"""LLVM's features of each level that the psABI of x86-64 defines."""


def vector_bits_of(features: str) -> int:
    """The widest vectors that ``features`` (LLVM's comma separated list) offers."""
    flags = set(features.split(","))
    # All four together, as code uses each of them (see ``passes/cost/processor.py``).
    if {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"} <= flags:
        return 512
    return 256 if {"+avx2", "+fma"} <= flags else 128
