"""Operators with regions: ``scan`` (a loop of known length), ``cond`` and ``while_loop``. Bodies are graphs without
state; everything they read is an operand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tracecomp.base.interrupts import uninterrupted
from tracecomp.ir.arrays import Array
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import Evaluate, Interpreter
from tracecomp.ir.op import BadInput, Control, Op, Operand, Operands, Sample, register
from tracecomp.ir.types import DType, TensorType, bool_, float32, float64, int64
from tracecomp.ops import contraction, creation, elementwise_binary, elementwise_unary  # noqa: F401 - sample bodies use them
from tracecomp.ops.autodiff import Sym, vjp, zeros_like
from tracecomp.ops.define import require
from tracecomp.ops.prim import prim
from tracecomp.ops.regions import (
    Types,
    backward_region,
    float_places,
    inline,
    input_types,
    inputs_of,
    output_types,
)
from tracecomp.ops.reversal import while_vjp


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


@lru_cache(maxsize=256)
def _prepared(body: Graph) -> Interpreter:
    return Interpreter(body)


def _scan_infer(*types: TensorType, body: Graph, carries: int, xs: int, length: int, reverse: bool) -> Types:
    for t in types[carries : carries + xs]:
        require(
            t.ndim > 0 and t.shape[0] == length,
            RuntimeError,
            f"scan: expected xs with {length} elements along the first axis, got {t}",
        )
    given = (*types[:carries], *(TensorType(t.dtype, t.shape[1:]) for t in types[carries : carries + xs]),
             *types[carries + xs :])  # fmt: skip
    require(
        given == input_types(body),
        RuntimeError,
        f"scan: the body takes ({_listed(input_types(body))}), but each step gives it ({_listed(given)})",
    )
    out = output_types(body)
    require(
        out[:carries] == given[:carries],
        RuntimeError,
        f"scan: the body must return its carries with their types ({_listed(given[:carries])}), it returns "
        f"({_listed(out[:carries])})",
    )
    return (*out[:carries], *(TensorType(t.dtype, (length, *t.shape)) for t in out[carries:]))


def _scan_impl(
    *arrays: Array, body: Graph, carries: int, xs: int, length: int, reverse: bool, evaluate: Evaluate | None = None
) -> Any:
    run = _prepared(body).run
    state = list(arrays[:carries])
    inputs, consts = arrays[carries : carries + xs], arrays[carries + xs :]
    stacked = [np.empty((length, *t.shape), t.dtype.numpy) for t in output_types(body)[carries:]]
    for step in reversed(range(length)) if reverse else range(length):
        results = run([*state, *(np.asarray(x[step]) for x in inputs), *consts], evaluate=evaluate)
        state = results[:carries]
        for whole, y in zip(stacked, results[carries:], strict=True):
            whole[step] = y
        uninterrupted.handle_in_loop()
    return (*(np.array(s) for s in state), *stacked)


@lru_cache(maxsize=256)
def _with_history(body: Graph, missing: tuple[int, ...]) -> Graph:
    """Return the body, which also outputs its input carries numbered ``missing``."""
    graph = Graph(f"{body.name}_history")
    operands = [graph.add_input(v.type, f"in{i}") for i, v in enumerate(inputs_of(body))]
    for value in inline(graph, body, operands):
        graph.add_output(value)
    for number in missing:
        graph.add_output(operands[number])
    return graph


@lru_cache(maxsize=256)
def _backward_body(body: Graph, carries: int, xs: int) -> Graph:
    """Build one step backwards.

    Carries: gradients of carries and sums of gradients of consts. xs: carries, xs, gradients of ys and ys. Then consts.
    Gradients are floating point only. Stacked results of the body are read, not computed again.
    """
    graph = Graph(f"{body.name}_backward")
    types, out_types = input_types(body), output_types(body)
    consts = types[carries + xs :]

    def inputs(prefix: str, wanted: Sequence[TensorType]) -> list[Value]:
        return [graph.add_input(t, f"{prefix}{i}") for i, t in enumerate(wanted)]

    carry_grads = inputs("dcarry", [types[i] for i in float_places(types[:carries])])
    sums = inputs("dconst", [consts[i] for i in float_places(consts)])
    operands = inputs("in", types[: carries + xs])
    y_grads = inputs("dy", [out_types[carries:][i] for i in float_places(out_types[carries:])])
    stacked = inputs("y", out_types[carries:])
    operands += inputs("const", consts)
    results = inline(graph, body, operands)
    outputs = [v for v in results if v.dtype.differentiable]
    wrt = [v for v in operands if v.dtype.differentiable]
    found = vjp(graph, outputs, [*carry_grads, *y_grads], wrt)
    full = [zeros_like(Sym(graph, v)).value if g is None else g for v, g in zip(wrt, found, strict=True)]
    n_carry, n_const = len(carry_grads), len(sums)
    for value in full[:n_carry]:
        graph.add_output(value)
    for total, value in zip(sums, full[len(full) - n_const :], strict=True):
        graph.add_output(graph.apply("add", total, value))
    for value in full[n_carry : len(full) - n_const]:
        graph.add_output(value)
    made = {v: y for v, y in zip(results[carries:], stacked, strict=True) if v.node is not None}
    return _with_values_given(graph, made)


def _with_values_given(graph: Graph, given: dict[Value, Value]) -> Graph:
    """``graph`` with some of its values replaced by inputs, and without nodes that only those needed."""
    new = Graph(graph.name)
    known = {i.value: new.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}

    def of(value: Value) -> Value:
        return known[given.get(value, value)]

    for node in graph.nodes:
        known.update(zip(node.outputs, new.add(node.op, map(of, node.inputs), node.attrs), strict=True))
    for output in graph.outputs:
        new.add_output(of(output.value), output.name, output.role)
    new.drop_dead()
    return new


def _histories(
    outs: Operands, ins: Operands, body: Graph, carries: int, xs: int, length: int, reverse: bool
) -> list[Any]:
    """Every carry as it was before each step: from a stacked result that equals the carry, else by running again."""
    produced = [o.value for o in body.outputs]
    place = {value: k for k, value in reversed(list(enumerate(produced[carries:])))}
    missing = tuple(i for i in range(carries) if produced[i] not in place)
    again: list[Any] = []
    if missing:
        results = prim.scan(
            *ins, body=_with_history(body, missing), carries=carries, xs=xs, length=length, reverse=reverse
        )
        again = list(results[-len(missing) :])
    found = []
    for i in range(carries):
        if i in missing:
            found.append(again[missing.index(i)])
            continue
        y, first = outs[carries + place[produced[i]]], prim.reshape(ins[i], shape=(1, *ins[i].shape))
        shape = tuple(y.shape)
        start, stop = (1, length) if reverse else (0, length - 1)
        rest = prim.slice(y, starts=(start, *(0 for _ in shape[1:])), stops=(stop, *shape[1:]), steps=(1,) * len(shape))
        found.append(prim.concat(rest, first, axis=0) if reverse else prim.concat(first, rest, axis=0))
    return found


def _scan_vjp(
    grads: Operands, outs: Operands, ins: Operands, *, body: Graph, carries: int, xs: int, length: int, reverse: bool
) -> Any:
    if length == 0:
        return [*grads[:carries], *map(_zeros_or_none, ins[carries:])]
    types = input_types(body)
    parts = (types[:carries], types[carries : carries + xs], types[carries + xs :])
    carry_floats, x_floats, const_floats = map(float_places, parts)
    y_floats = float_places(output_types(body)[carries:])
    consts = ins[carries + xs :]
    history = _histories(outs, ins, body, carries, xs, length, reverse)
    backward = prim.scan(
        *(grads[i] for i in carry_floats),
        *(_zeros_or_none(consts[i]) for i in const_floats),
        *history, *ins[carries : carries + xs],
        *(grads[carries + i] for i in y_floats),
        *outs[carries:],
        *consts,
        body=_backward_body(body, carries, xs),
        carries=len(carry_floats) + len(const_floats), xs=xs + len(y_floats) + len(outs), length=length,
        reverse=not reverse,
    )  # fmt: skip
    backward = list(backward) if isinstance(backward, tuple) else [backward]
    n, m = len(carry_floats), len(const_floats)
    by_operand: list[Any] = [None] * len(ins)
    for i, g in zip(carry_floats, backward[:n], strict=True):
        by_operand[i] = g
    for i, g in zip(const_floats, backward[n : n + m], strict=True):
        by_operand[carries + xs + i] = g
    for i, g in zip(x_floats, backward[n + m :], strict=True):
        by_operand[carries + i] = g
    return by_operand


def _zeros_or_none(x: Operand) -> Any:
    """Zeros like ``x``; None unless it is floating point."""
    if not x.dtype.differentiable:
        return None
    return prim.full(like=x, value=0.0, shape=tuple(x.shape), dtype=x.dtype)


def _cond_infer(predicate: TensorType, *types: TensorType, then: Graph, orelse: Graph) -> Types:
    require(
        predicate == TensorType(bool_, ()),
        RuntimeError,
        f"cond: pred must be a 0-d bool tensor, got {predicate}",
    )
    for graph in (then, orelse):
        require(
            input_types(graph) == types,
            RuntimeError,
            f"cond: {graph.name} takes ({_listed(input_types(graph))}), but is given ({_listed(types)})",
        )
        require(
            output_types(graph) == output_types(then),
            RuntimeError,
            f"cond: branches return ({_listed(output_types(then))}) and ({_listed(output_types(graph))})",
        )
    return output_types(then)


def _cond_impl(predicate: Array, *arrays: Array, then: Graph, orelse: Graph, evaluate: Evaluate | None = None) -> Any:
    found = _prepared(then if predicate else orelse).run(arrays, evaluate=evaluate)
    return tuple(np.array(x) for x in found)  # a branch may return its operand, a view of one, or a constant


def _cond_vjp(grads: Operands, outs: Operands, ins: Operands, *, then: Graph, orelse: Graph) -> Any:
    floats = float_places(input_types(then))
    given = [grads[i] for i in float_places(output_types(then))]
    by_operand: list[Any] = [None] * len(ins)
    if floats:
        found = prim.cond(*ins, *given, then=backward_region(then), orelse=backward_region(orelse))
        for i, g in zip(floats, found if isinstance(found, tuple) else (found,), strict=True):
            by_operand[1 + i] = g
    return by_operand


def _while_infer(*types: TensorType, test: Graph, body: Graph, carries: int) -> Types:
    require(
        input_types(test) == types == input_types(body),
        RuntimeError,
        f"while_loop: test takes ({_listed(input_types(test))}), body ({_listed(input_types(body))}), both are given "
        f"({_listed(types)})",
    )
    require(
        output_types(test) == (TensorType(bool_, ()),),
        RuntimeError,
        f"while_loop: cond_fn must return one 0-d bool tensor, got ({_listed(output_types(test))})",
    )
    require(
        output_types(body) == types[:carries],
        RuntimeError,
        f"while_loop: body_fn must return ({_listed(types[:carries])}), it returns ({_listed(output_types(body))})",
    )
    return types[:carries]


def _while_impl(*arrays: Array, test: Graph, body: Graph, carries: int, evaluate: Evaluate | None = None) -> Any:
    state, consts = list(arrays[:carries]), arrays[carries:]
    goes_on, step = _prepared(test), _prepared(body)
    while goes_on.run([*state, *consts], evaluate=evaluate)[0]:
        state = step.run([*state, *consts], evaluate=evaluate)
        uninterrupted.handle_in_loop()
    return tuple(np.array(s) for s in state)


def _recurrence(dtype: DType) -> Graph:
    """A sample body: ``h = tanh(h @ w + x)``, also stacked; a step counter that is not; a stacked sum."""
    body = Graph("recurrence")
    h, n = body.add_input(TensorType(dtype, (2, 3)), "h"), body.add_input(TensorType(int64, ()), "n")
    x, w = body.add_input(TensorType(dtype, (2, 3)), "x"), body.add_input(TensorType(dtype, (3, 3)), "w")
    new = body.apply("tanh", body.apply("add", body.apply("contract", h, w, spec="mk,kn->mn"), x))
    body.add_output(new)
    body.add_output(body.apply("add", n, body.scalar(1, int64)))
    body.add_output(new)
    body.add_output(body.apply("mul", x, h))
    return body


def _gated(dtype: DType) -> Graph:
    """A sample body whose carry is not stacked: ``c = c * sigmoid(x)``, with the old carry doubled stacked."""
    body = Graph("gated")
    c, x = body.add_input(TensorType(dtype, (3,)), "c"), body.add_input(TensorType(dtype, (3,)), "x")
    body.add_output(body.apply("mul", c, body.apply("sigmoid", x)))
    body.add_output(body.apply("mul", c, body.scalar(2.0, dtype)))
    return body


def _branch(op: str) -> Graph:
    graph = Graph(op)
    x, y = graph.add_input(TensorType(float64, (3,)), "x"), graph.add_input(TensorType(float64, (3,)), "y")
    graph.add_output(graph.apply(op, x, y))
    graph.add_output(graph.apply("neg", x))
    return graph


def _loop(name: str, dtype: DType) -> Graph:
    """Inputs x, k, n and w, for a loop that replaces x by x * w / (x * x + 1) while k, which counts, is below n."""
    graph = Graph(name)
    graph.add_input(TensorType(dtype, (3,)), "x")
    graph.add_input(TensorType(int64, ()), "k")
    graph.add_input(TensorType(int64, ()), "n")
    graph.add_input(TensorType(dtype, (3,)), "w")
    return graph


def _loop_test(dtype: DType) -> Graph:
    test = _loop("test", dtype)
    test.add_output(test.apply("lt", test.inputs[1].value, test.inputs[2].value))
    return test


def _loop_body(dtype: DType) -> Graph:
    body = _loop("body", dtype)
    x, k, _, w = (i.value for i in body.inputs)
    below = body.apply("add", body.apply("mul", x, x), body.scalar(1.0, dtype))
    body.add_output(body.apply("div", body.apply("mul", x, w), below))
    body.add_output(body.apply("add", k, body.scalar(1, int64)))
    return body


def _scan_samples() -> tuple[Sample, ...]:
    found = []
    for short, dtype in (("f32", float32), ("f64", float64)):
        for length, reverse in ((4, False), (3, True), (1, False), (0, False)):
            given = (((2, 3), short, "any"), ((), "i64", "any"), ((length, 2, 3), short, "any"), ((3, 3), short, "any"))
            attrs = {"carries": 2, "xs": 1, "length": length, "reverse": reverse, "body": partial(_recurrence, dtype)}
            found.append(Sample(given, attrs))
            gated = {"carries": 1, "xs": 1, "length": length, "reverse": reverse, "body": partial(_gated, dtype)}
            found.append(Sample((((3,), short, "any"), ((length, 3), short, "any")), gated))
    return tuple(found)


_SCAN_ATTRS: dict[str, Any] = {"body": Graph, "carries": int, "xs": int, "length": int, "reverse": bool}
_GATED = {"carries": 1, "xs": 1, "length": 3, "reverse": False, "body": partial(_gated, float32)}

register(
    Op(
        name="scan", kind="control", doc="(carries, xs[i], consts) -> (carries, ys[i]) along the first axis of xs",
        infer=_scan_infer, impl=_scan_impl, vjp=_scan_vjp, loop=Control(), attrs=_SCAN_ATTRS, samples=_scan_samples(),
        errors=(
            BadInput(Sample((((3,), "f32", "any"), ((2, 3), "f32", "any")), _GATED), RuntimeError, "3 elements along"),
            BadInput(Sample((((4,), "f32", "any"), ((3, 3), "f32", "any")), _GATED), RuntimeError, "the body takes"),
        ),
    )
)  # fmt: skip

_BRANCHES = {"then": partial(_branch, "mul"), "orelse": partial(_branch, "sub")}

register(
    Op(
        name="cond", kind="control", doc="the results of then where the predicate holds, else of orelse",
        infer=_cond_infer, impl=_cond_impl, vjp=_cond_vjp, saves=("ins",), loop=Control(),
        attrs={"then": Graph, "orelse": Graph},
        samples=tuple(
            Sample((((), "b1", "index:2"), ((3,), "f64", "any"), ((3,), "f64", "any")),
                   {"then": partial(_branch, a), "orelse": partial(_branch, b)})
            for a, b in (("mul", "sub"), ("sub", "mul"), ("maximum", "add"))
        ),
        errors=(
            BadInput(Sample((((1,), "b1", "any"), ((3,), "f64", "any"), ((3,), "f64", "any")),
                            _BRANCHES), RuntimeError, "pred must be"),
            BadInput(Sample((((), "b1", "any"), ((2,), "f64", "any"), ((3,), "f64", "any")),
                            _BRANCHES), RuntimeError, "but is given"),
        ),
    )
)  # fmt: skip


def _while(short: str, dtype: DType, n: int) -> Sample:
    attrs = {"test": partial(_loop_test, dtype), "body": partial(_loop_body, dtype), "carries": 2}
    numbers = (((), "i64", "index:2"), ((), "i64", f"index:{n}"))
    return Sample((((3,), short, "any"), *numbers, ((3,), short, "any")), attrs)


register(
    Op(
        name="while_loop", kind="control", doc="carries replaced by body(carries, consts) while test of them holds",
        infer=_while_infer, impl=_while_impl, vjp=while_vjp, saves=("ins",), loop=Control(),
        attrs={"test": Graph, "body": Graph, "carries": int},
        samples=tuple(_while(s, t, n) for s, t in (("f32", float32), ("f64", float64)) for n in (1, 9, 5)),
        errors=(
            BadInput(Sample((((3,), "f32", "any"), ((), "i64", "any"), ((), "i32", "any"), ((3,), "f32", "any")),
                            _while("f32", float32, 1).attrs), RuntimeError, "both are given"),
        ),
    )
)  # fmt: skip
