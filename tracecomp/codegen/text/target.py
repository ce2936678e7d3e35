"""The machine that code is spelled for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """LLVM's names for a processor, and what codegen itself looks at."""

    triple: str
    data_layout: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def has_scalef(self) -> bool:
        """Whether multiplying by a power of two is one instruction."""
        return self.is_x86 and self.vector_bits == 512


def vector_bits_of(features: str) -> int:
    """The widest vectors that ``features`` (LLVM's comma separated list) offers."""
    flags = set(features.split(","))
    # All four together, as code uses each of them (see ``passes/cost/processor.py``).
    if {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"} <= flags:
        return 512
    return 256 if {"+avx2", "+fma"} <= flags else 128
