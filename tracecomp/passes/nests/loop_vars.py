"""Splitting loop variables where an index divides them, so that strides become constants."""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.ir.index import FloorDiv, Index, Mod, Var, index
from tracecomp.ir.loop_copy import indices_of
from tracecomp.ir.loops import Stmt


def wanted_split(body: Iterable[Stmt], allowed: Iterable[Var], multiple: int = 1) -> tuple[Var, int] | None:
    """Return a variable and the extent of its inner part that would turn a division or remainder into plain strides."""
    candidates = set(allowed)
    for i in indices_of(body):
        for atom, _ in i.terms:
            if not isinstance(atom, FloorDiv | Mod):
                continue
            for part, c in atom.index.terms:
                # A division by d of ``c * part`` with c dividing d is a division of ``part`` alone by d / c.
                if not isinstance(part, Var) or part not in candidates or atom.divisor % c:
                    continue
                inner = atom.divisor // c
                # Both parts have to be whole: a remainder would need a condition on every element. ``multiple`` keeps
                # lanes whole, as splitting a summed variable must not move elements between partial sums.
                if 1 < inner < part.extent and part.extent % inner == 0 and inner % multiple == 0:
                    return part, inner
    return None


def split(var: Var, inner: int) -> tuple[Var, Var, dict[Var, Index]]:
    """The outer and inner part of a split variable, and the substitution that introduces them."""
    outer_part = Var(f"{var.name}_o", var.extent // inner)
    inner_part = Var(f"{var.name}_i", inner)
    # Same values in the same order, so splitting keeps the order of summation.
    return outer_part, inner_part, {var: index(outer_part) * inner + index(inner_part)}


def replaced(names: Iterable[Var], var: Var, outer: Var, inner: Var) -> list[Var]:
    """``names`` with a split variable replaced by its parts."""
    return [w for v in names for w in ((outer, inner) if v == var else (v,))]


def merge_vars(names: list[Var], body: list[Stmt]) -> dict[Var, Index]:
    """Return a substitution that joins neighbouring variables if every index steps through them as one."""
    indices = list(indices_of(body))
    mapping: dict[Var, Index] = {}
    kept: list[Var] = []
    for var in names:
        previous = kept[-1] if kept else None
        # Earlier joins are substituted first, so that three variables that step as one become one.
        if previous is not None and _steps_as_one(previous, var, [i.substitute(mapping) for i in indices]):
            joined = Var(f"{previous.name}_{var.name}", previous.extent * var.extent)
            # The outer variable becomes 0 and the inner one covers both: indices with matching strides give the same
            # positions.
            change = {previous: Index(), var: index(joined)}
            # Variables that were joined earlier may occur in the replacement.
            mapping = {v: i.substitute(change) for v, i in mapping.items()} | change
            kept[-1] = joined
        else:
            kept.append(var)
    return mapping


def _steps_as_one(outer: Var, inner: Var, indices: list[Index]) -> bool:
    for i in indices:
        # None: the variable occurs inside a division or in data, so the join cannot be proved.
        a, b = i.coefficient(outer), i.coefficient(inner)
        if a is None or b is None or a != b * inner.extent:
            return False
    return True


def merged(names: list[Var], mapping: dict[Var, Index]) -> list[Var]:
    """The variables that remain after ``merge_vars``, in order."""
    found: dict[Var, None] = {}
    for var in names:
        # Two variables map to one joined variable; a dict keeps it once, at its first place, so the order of loops is
        # kept.
        for v in sorted(mapping[var].vars(), key=lambda v: v.name) if var in mapping else (var,):
            found[v] = None
    return list(found)
