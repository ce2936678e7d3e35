"""Reductions of permuted values: the permutation moves behind them. It settles the order in which floats are added."""

from __future__ import annotations

from tracecomp.passes.rewrite import Application, Replacement, Rewriter, Rules, made_by
from tracecomp.passes.views import reduce_before_permute

RULES = Rules()


@RULES.on("sum", "prod")
def reduction_of_permute(g: Rewriter, a: Application) -> Replacement:
    """sum(permute(x)) -> permute(sum(x)): adds in the order in which ``x`` lies in memory"""
    inner = made_by(a.inputs[0], "permute")
    return reduce_before_permute(g, a, inner) if inner else None
