"""Before and after of graph rewrites, in the printed language of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph
from tracecomp.ir.interpret import interpret
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import TensorType
from tracecomp.ir.verify import verify
from tracecomp.passes.steps import Log

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A rewrite: ``inputs`` such as ``"x:f32[3] y:f32[]"``, and nodes before and after, the last one the result."""

    rule: str
    inputs: str
    before: str
    after: str

    def graph(self, body: str) -> Graph:
        given = [part.split(":", 1) for part in self.inputs.split()]
        lines = [f'  %{name}: {type_} = argument "{name}"' for name, type_ in given]
        nodes = [line.strip() for line in body.strip().splitlines()]
        last = nodes[-1]
        result = last.split(" = ")[0] if " = " in last else last
        nodes = nodes if " = " in last else nodes[:-1]
        text = "\n".join(['graph "case" {', *lines, *(f"  {n}" for n in nodes), f'  result "out0" = {result}', "}"])
        return parse_graph(text)


def check(case: Case, run: Any, *, exact: bool = True) -> None:
    """``run(before)`` prints as ``after``, fires the rule, verifies, and computes the same bits.

    Not ``exact``: for finite operands, up to the order of sums.
    """
    before, log = case.graph(case.before), Log()
    after = run(before, log)
    verify(after)
    assert print_graph(after) == print_graph(case.graph(case.after))
    assert log.hits[case.rule] > 0, dict(log.hits)
    for arrays in samples([i.value.type for i in before.inputs], special=exact):
        [want], [have] = interpret(before, arrays), interpret(after, arrays)
        if exact:
            same_bits(have, want)
        else:
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


SPECIAL = (-0.0, 0.0, np.inf, -np.inf, np.nan, 1.0, -2.5)


def samples(types: list[TensorType], special: bool = True) -> list[list[Array]]:
    """Operands: with ``special``, every pair of special floats meets; always, a set of plain ones."""
    rng = np.random.default_rng(0)
    plain = [[_plain(rng, t) for t in types]]
    if not special:
        return plain
    shifts = [(first, second) for first in range(len(SPECIAL)) for second in range(len(SPECIAL))]
    return plain + [[_special(rng, t, shift[n % 2]) for n, t in enumerate(types)] for shift in shifts]


def _plain(rng: np.random.Generator, type: TensorType) -> Array:
    if type.dtype.kind == "bool":
        return rng.random(type.shape) < 0.5
    if type.dtype.kind == "int":
        return rng.integers(0 if not type.dtype.signed else -5, 6, type.shape).astype(type.dtype.numpy)
    return (rng.standard_normal(type.shape) * 3).astype(type.dtype.numpy)


def _special(rng: np.random.Generator, type: TensorType, shift: int) -> Array:
    """Special values in turn, from number ``shift`` on; integers and bools at random."""
    if type.dtype.kind != "float":
        return _plain(rng, type)
    values = np.resize(np.roll(SPECIAL, -shift), type.numel)
    return values.reshape(type.shape).astype(type.dtype.numpy)


def same_bits(have: Array, want: Array) -> None:
    """Equal type, shape and bits; NaNs are equal whatever their payload."""
    assert have.dtype == want.dtype and have.shape == want.shape
    np.testing.assert_array_equal(have, want)
    if have.dtype.kind == "f":
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(have)[known], np.signbit(want)[known])
