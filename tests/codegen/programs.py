"""Small programs of one kernel, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Buffer, Call, Expr, Load, Loop, Stmt, Store
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, Slot
from tracecomp.ir.types import DType

Array = np.ndarray[Any, Any]


def program(kernel: Kernel, inputs: int) -> Program:
    """``kernel`` called on its parameters: the first ``inputs`` are inputs, the others outputs."""
    slots = [
        Slot(p.name, "input" if i < inputs else "output", i if i < inputs else i - inputs, p.size * p.dtype.itemsize)
        for i, p in enumerate(kernel.params)
    ]
    refs = tuple(Ref(s) for s in slots)
    return Program(kernel.name, tuple(slots[:inputs]), tuple(slots[inputs:]), 0, (CallStep(kernel, refs, "step"),))


def elementwise(fn: Callable[..., Expr], types: Sequence[DType], out: DType, size: int, chunk: int = 32) -> Program:
    """``out[i] = fn(in0[i], in1[i], ...)`` in vector chunks and a rest."""
    params = tuple(Buffer(f"x{i}", t, size) for i, t in enumerate(types))
    result = Buffer("y", out, size)

    def stmt(offset: Any) -> Store:
        return Store(result, offset, fn(*[Load(p, offset) for p in params]))

    body: list[Stmt] = []
    whole, rest = divmod(size, chunk)
    if whole:
        i, v = Var("i", whole), Var("v", chunk)
        body.append(Loop("parallel", i, (Loop("vector", v, (stmt(index(i) * chunk + index(v)),)),)))
    if rest:
        v = Var("r", rest)
        body.append(Loop("vector", v, (stmt(index(v) + whole * chunk),)))
    return program(Kernel("elementwise", (*params, result), frozenset(["y"]), tuple(body)), len(params))


def scalar_op(op: str, out: DType) -> Callable[..., Expr]:
    return lambda *args: Call(op, args, out)
