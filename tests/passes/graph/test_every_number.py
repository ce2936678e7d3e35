"""Rules about numbers, on every float16 and every int8 there is: what they make of a graph has the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.codegen.running import same_bits
from tracecomp import ops
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.op import OPS
from tracecomp.ir.types import DType, TensorType, bool_, float16, float32, float64, int8, int32, int64, uint8
from tracecomp.passes.graph import rule_sets
from tracecomp.passes.steps import Log

assert ops
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
BYTES = np.arange(256, dtype=np.uint8)
UNARY = ("neg", "abs", "floor", "ceil", "round", "sign", "sqrt", "square", "relu")
ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 8.0, float("inf"), float("-inf"), float("nan"))
WHOLE = (0, 1, -1, 2, 3, 8, 127, -128)
"""Operands with which a rule may have something to say."""


def applied(g: Graph, name: str, *args: Value, **attrs: Any) -> Value | None:
    """The operator on the operands; None where it takes no such types, or is not there."""
    if name not in OPS:
        return None
    try:
        return g.apply(name, *args, **attrs)
    except (TypeError, ValueError, RuntimeError):
        return None


def graphs(dtype: DType, numbers: tuple[Any, ...], size: int) -> Iterator[Graph]:
    """One or two operators on a value, alone and with numbers before and behind it."""
    binary = (*ARITHMETIC, *COMPARISONS, "bitwise_and", "bitwise_or")
    first: list[Any] = [*UNARY, *itertools.product(binary, numbers, (0, 1))]
    second = ("", "neg", "abs", "logical_not", "itself", "cast back")
    for one, two in itertools.product(first, second):
        g = Graph("rule")
        x = g.add_input(TensorType(dtype, (size,)), "x")
        if isinstance(one, str):
            y = applied(g, one, x)
        else:
            name, number, turned = one
            if dtype.kind == "int" and name in ("div", "fmod", "pow"):  # zero divides nothing
                continue
            c = g.scalar(number, dtype)
            y = applied(g, name, *((c, x) if turned else (x, c)))
        if y is None:
            continue
        if two == "itself":
            z = applied(g, "add", y, applied(g, "neg", y) or y)
        elif two == "cast back":
            wide = float64 if dtype.kind == "float" else int64
            z = applied(g, "cast", applied(g, "cast", y, dtype=wide) or y, dtype=y.dtype)
        else:
            z = applied(g, two, y) if two else y
        if z is not None:
            g.add_output(z)
            yield g


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "numbers", "x"), [
    (float16, NUMBERS, HALVES), (int8, WHOLE, BYTES.view(np.int8)), (uint8, WHOLE[:2] + WHOLE[3:7], BYTES),
], ids=["float16", "int8", "uint8"])  # fmt: skip
def test_rules_keep_the_bits_of_every_number(dtype: DType, numbers: tuple[Any, ...], x: np.ndarray) -> None:
    changed = 0
    with np.errstate(all="ignore"):
        for g in graphs(dtype, numbers, x.size):
            log = Log()
            simpler = rule_sets.simplify(g, log)
            if not log.hits.total():
                continue
            changed += 1
            before, after = interpret(g, [x])[0], interpret(simpler, [x])[0]
            assert same_bits(np.asarray(before), np.asarray(after)), f"{g}\n{simpler}"
    assert changed > 40, "hardly a rule had anything to say"


@pytest.mark.parametrize("between", [float32, float64, float16, int32, int64, int8, uint8, bool_], ids=str)
@pytest.mark.parametrize("start", [float16, int8, uint8, bool_], ids=str)
def test_casts_keep_the_bits_of_every_number(start: DType, between: DType) -> None:
    every: np.ndarray[Any, Any] = {
        float16: HALVES,
        int8: BYTES.view(np.int8),
        uint8: BYTES,
        bool_: np.array([False, True]),
    }[start]  # type: ignore[assignment]
    for end in (start, float32, float64, int32, int64):
        # An integer from a float outside of its range is undefined.
        unsure = start is float16 and "int" in (between.kind, end.kind)
        x = every[np.abs(np.nan_to_num(every.astype(np.float64), nan=1e9)) < 100] if unsure else every
        g = Graph("casts")
        value = g.add_input(TensorType(start, x.shape), "x")
        g.add_output(g.apply("cast", g.apply("cast", value, dtype=between), dtype=end))
        with np.errstate(all="ignore"):
            simpler = rule_sets.simplify(g, Log())
            before, after = interpret(g, [x])[0], interpret(simpler, [x])[0]
        assert same_bits(np.asarray(before), np.asarray(after)), f"{g}\n{simpler}"
