"""Loops and branches, with regions as bodies that read outer values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tracecomp.ir.graph import Node
from tracecomp.ir.types import bool_, int64
from tracecomp.onnx.export_rules.emitter import Emitter, described, rule
from tracecomp.ops.regions import inputs_of


@rule("scan")
def scan(e: Emitter, node: Node, *operands: str) -> Sequence[str]:
    body, carries, xs, reverse = (node.attrs[n] for n in ("body", "carries", "xs", "reverse"))
    consts = operands[carries + xs :]
    if node.attrs["length"] == 0:
        return [*operands[:carries], *[e.constant(np.zeros(v.shape, v.dtype.numpy)) for v in node.outputs[carries:]]]
    given = [*zip(operands, [v.dtype for v in inputs_of(body)], strict=True)]
    states, series = given[:carries], given[carries : carries + xs]
    results = [o.value.dtype for o in body.outputs[carries:]]
    if xs:
        return e.scan(states, series, results, lambda ins: e.inline(body, [*ins, *consts]), reverse=reverse)
    count = [(e.count(node.attrs["length"]), int64)]  # ONNX goes through something
    return e.scan(states, count, results, lambda ins: e.inline(body, [*ins[:-1], *consts]), reverse=reverse)


@rule("cond")
def cond(e: Emitter, node: Node, predicate: str, *operands: str) -> Sequence[str]:
    dtypes = [v.dtype for v in node.outputs]

    def branch(name: str) -> Any:
        return e.branch(name, lambda: e.inline(node.attrs[name], operands), dtypes)

    then, orelse = branch("then"), branch("orelse")
    return e.several("If", [predicate], len(dtypes), then_branch=then, else_branch=orelse)


@rule("while_loop")
def while_loop(e: Emitter, node: Node, *operands: str) -> Sequence[str]:
    test, body, carries = (node.attrs[n] for n in ("test", "body", "carries"))
    consts, dtypes = operands[carries:], [v.dtype for v in node.outputs]
    first = e.inline(test, operands)
    turn, going, *given = (e.fresh() for _ in range(2 + carries))
    with e.body() as nodes:
        state = e.inline(body, [*given, *consts])
        results = [e.node("Identity", [r]) for r in (*e.inline(test, [*state, *consts]), *state)]
        numbers = [onnx.TensorProto.INT64, onnx.TensorProto.BOOL]
        ins = [onnx.helper.make_tensor_value_info(n, k, []) for n, k in zip((turn, going), numbers, strict=True)]
        ins += [described(n, d) for n, d in zip(given, dtypes, strict=True)]
        outs = [described(n, d) for n, d in zip(results, [bool_, *dtypes], strict=True)]
        turned = onnx.helper.make_graph(nodes, body.name, ins, outs)
    return e.several("Loop", ["", *first, *operands[:carries]], carries, body=turned)
