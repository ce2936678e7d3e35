"""Splitting loop variables where an index divides them, so that strides become constants."""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.ir.index import FloorDiv, Index, Mod, Var, index
from tracecomp.ir.loops import Stmt
from tracecomp.passes.rename import indices_of


def wanted_split(body: Iterable[Stmt], allowed: Iterable[Var], multiple: int = 1) -> tuple[Var, int] | None:
    """A variable and the extent of its inner part that would turn a division or remainder into plain strides."""
    candidates = set(allowed)
    for i in indices_of(body):
        for atom, _ in i.terms:
            if not isinstance(atom, FloorDiv | Mod):
                continue
            for part, c in atom.index.terms:
                if not isinstance(part, Var) or part not in candidates or atom.divisor % c:
                    continue
                inner = atom.divisor // c
                if 1 < inner < part.extent and part.extent % inner == 0 and inner % multiple == 0:
                    return part, inner
    return None


def split(var: Var, inner: int) -> tuple[Var, Var, dict[Var, Index]]:
    """The outer and inner part of a split variable, and the substitution that introduces them."""
    outer_part = Var(f"{var.name}o", var.extent // inner)
    inner_part = Var(f"{var.name}i", inner)
    return outer_part, inner_part, {var: index(outer_part) * inner + index(inner_part)}
