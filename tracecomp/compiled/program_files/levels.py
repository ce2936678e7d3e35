"""The processors that a program file has code for, and what code for one of them is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracecomp.codegen.text import native
from tracecomp.codegen.text.target import FEATURES, Target
from tracecomp.passes.cost.machine import Machine
from tracecomp_runtime import processor


@dataclass(frozen=True)
class Level:
    """A kind of processor: LLVM's features, or the very ``processor``, and the machine that schedules are made for."""

    features: str
    machine: Machine
    processor: Target | None = None
    triple: str = "x86_64-unknown-linux-gnu"

    @property
    def target(self) -> Target:
        """The target of code generation."""
        cpu = "x86-64" if self.triple.startswith("x86_64") else "generic"
        return self.processor or native.cross_target(self.triple, cpu, self.features)


LEVELS: Mapping[str, Level] = {
    "x86-64-v2": Level(FEATURES["x86-64-v2"], Machine(16, 16)),
    "x86-64-v3": Level(FEATURES["x86-64-v3"], Machine(32, 16)),
    "x86-64-v4": Level(FEATURES["x86-64-v4"], Machine(64, 32)),
}
"""As the psABI defines them; ``tracecomp_runtime.processor`` finds out which of them a processor has."""
OTHERS: Mapping[str, Level] = {"aarch64": Level("+neon", Machine(16, 32), triple="aarch64-unknown-linux-gnu")}
"""Other architectures."""


def chosen(names: Sequence[str] | None) -> Mapping[str, Level]:
    """The levels called ``names``, by default those of this machine's architecture. ValueError for an unknown name."""
    known = {**LEVELS, **OTHERS}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"levels must be among {', '.join(known)}, got {unknown[0]!r}")
    if names is None:
        return OTHERS if OTHERS.keys() & set(processor.levels()) else LEVELS
    return {name: known[name] for name in names}
