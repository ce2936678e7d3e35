"""Derivatives of single operator applications, as short programs.

An operator's ``vjp`` rule runs once per signature on graph values. Dead code is dropped, so only the wanted operand
gradients are computed, and the program shows which saved operands they read. It then runs on arrays, or on tensors when
the derivative itself is differentiated or recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.ir.graph import Graph, Value, attrs_key
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.ops.autodiff import Sym, sum_to, vjp, zeros_like

Run = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]
ArrayType = tuple[Any, tuple[int, ...]]  # numpy dtype and shape
Step = tuple[Op, tuple[int, ...], tuple[int, ...], dict[str, Any]]


class Derivative:
    """Gradients of the wanted operands, as steps over numbered slots: operands, results, result gradients, temporaries.

    ``reads`` are the slots among operands and results whose values are needed.
    """

    __slots__ = ("reads", "results", "size", "steps")

    def __init__(self, steps: list[Step], results: tuple[int | None, ...], reads: frozenset[int], size: int) -> None:
        self.steps = steps
        self.results = results
        self.reads = reads
        self.size = size

    def run(self, slots: list[object], run: Run) -> list[Any]:
        """Gradients, None where there is none; ``slots`` holds operands, results and result gradients."""
        slots.extend([None] * (self.size - len(slots)))
        for op, reads, writes, attrs in self.steps:
            result = run(op, tuple([slots[i] for i in reads]), attrs)
            if len(writes) == 1:  # control flow gives a tuple of however many results
                slots[writes[0]] = result[0] if type(result) is tuple else result
            else:
                for i, r in zip(writes, result, strict=True):
                    slots[i] = r
        return [None if i is None else slots[i] for i in self.results]


_cache: dict[Any, Derivative] = {}
_CACHE_LIMIT = 8192
"""Derivatives that are remembered; beyond that all are forgotten."""


def derivative(
    op: Op, attrs: Attrs, types: Sequence[ArrayType], outs: Sequence[ArrayType], wanted: tuple[bool, ...],
    present: tuple[bool, ...], keep: bool = True,
) -> Derivative:  # fmt: skip
    """The derivative of ``op`` on operands of ``types``: gradients of the ``wanted`` operands.

    ``present`` says which results have a gradient; the others count as zero. Kept for
    later unless the types have sizes of one recording, which no other must see.
    """
    if not keep:
        return _trace(op, attrs, types, outs, wanted, present)
    key = (op, attrs_key(attrs), tuple(types), wanted, present)
    found = _cache.get(key)
    if found is None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        found = _cache[key] = _trace(op, attrs, types, outs, wanted, present)
    return found


def _trace(
    op: Op, attrs: Attrs, types: Sequence[ArrayType], outs: Sequence[ArrayType], wanted: tuple[bool, ...],
    present: tuple[bool, ...],
) -> Derivative:  # fmt: skip
    graph = Graph(f"{op.name}_vjp")
    ins = [graph.add_input(_tensor_type(t), f"in{i}") for i, t in enumerate(types)]
    results = [graph.add_input(_tensor_type(t), f"out{i}") for i, t in enumerate(outs)]
    grads = [graph.add_input(_tensor_type(t), f"grad{i}") for i, t in enumerate(outs)]
    operands, outputs = [Sym(graph, v) for v in ins], [Sym(graph, v) for v in results]
    given = [Sym(graph, g) if p else zeros_like(o) for g, p, o in zip(grads, present, outputs, strict=True)]
    assert op.vjp is not None
    wrt = op.vjp(given, outputs, operands, **attrs)
    found: list[Value | None] = []
    for want, gradient, operand in zip(wanted, wrt, operands, strict=True):
        if want and gradient is not None:
            value = sum_to(gradient, operand.shape).value
            found.append(value)
            graph.add_output(value)
        else:
            found.append(None)
    return flatten(graph, found, len(ins) + len(results))


def pushforward(
    op: Op, attrs: Attrs, types: Sequence[ArrayType], outs: Sequence[ArrayType], given: tuple[bool, ...],
    keep: bool = True,
) -> Derivative:  # fmt: skip
    """Tangents of the results of ``op``, from those of the operands that are ``given``.

    The slots behind operands and results are tangents of the operands, then values of the results' types: any, where
    the program reads them. Kept for later as in :func:`derivative`.
    """
    if not keep:
        return _transpose(op, attrs, types, outs, given)
    key = (op, attrs_key(attrs), tuple(types), given)
    found = _cache.get(key)
    if found is None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        found = _cache[key] = _transpose(op, attrs, types, outs, given)
    return found


def _transpose(
    op: Op, attrs: Attrs, types: Sequence[ArrayType], outs: Sequence[ArrayType], given: tuple[bool, ...]
) -> Derivative:  # fmt: skip
    graph = Graph(f"{op.name}_jvp")
    ins = [graph.add_input(_tensor_type(t), f"in{i}") for i, t in enumerate(types)]
    results = [graph.add_input(_tensor_type(t), f"out{i}") for i, t in enumerate(outs)]
    tangents = [graph.add_input(_tensor_type(t), f"tangent{i}") for i, t in enumerate(types)]
    # Linear in these, so that their values do not matter. Only control flow hands them on to its regions.
    seeds = [graph.add_input(_tensor_type(t), f"grad{i}") for i, t in enumerate(outs)]
    operands, outputs = [Sym(graph, v) for v in ins], [Sym(graph, v) for v in results]
    assert op.vjp is not None
    wrt = op.vjp([Sym(graph, v) for v in seeds], outputs, operands, **attrs)
    pairs = [
        (sum_to(gradient, operand.shape).value, t)
        for gradient, operand, t, there in zip(wrt, operands, tangents, given, strict=True)
        if there and gradient is not None
    ]
    found = vjp(graph, [g for g, _ in pairs], [t for _, t in pairs], seeds)
    found = [v if v is not None and out.dtype.differentiable else None for v, out in zip(found, outputs, strict=True)]
    for v in found:
        if v is not None:
            graph.add_output(v)
    return flatten(graph, found, len(graph.inputs))


def _tensor_type(pair: ArrayType) -> TensorType:
    return TensorType(from_numpy_dtype(pair[0]), pair[1])


def flatten(graph: Graph, found: Sequence[Value | None], values: int) -> Derivative:
    """The program that computes ``found``; the first ``values`` inputs of ``graph`` are operands and results."""
    slot = {i.value: n for n, i in enumerate(graph.inputs)}
    steps: list[Step] = []
    read: set[int] = set()
    for node in graph.live_nodes():
        for v in node.outputs:
            slot[v] = len(slot)
        ins = tuple(slot[v] for v in node.inputs)
        read.update(ins)
        steps.append((node.op, ins, tuple(slot[v] for v in node.outputs), node.attrs))
    results = tuple(None if v is None else slot[v] for v in found)
    read.update(i for i in results if i is not None)
    return Derivative(steps, results, frozenset(i for i in read if i < values), len(slot))
