"""Control flow over callables: ``cond``, ``while_loop`` and ``scan`` make one operator of functions of tensors.

Each function runs once, on the operands, and is traced; its graph becomes a region of the operator. Tensors that it
reads from around it become further operands, so gradients reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.eager.aliasing import check_types
from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tangents import has_tangent
from tracecomp.eager.tensor import Tensor
from tracecomp.func.trace import DETACH, NO_GRAD, Trace, traced
from tracecomp.functional import names as T
from tracecomp.functional.primitives import prim
from tracecomp.ir.graph import Graph, Origin, Value
from tracecomp.ir.op import OPS, Attrs
from tracecomp.ir.types import TensorType
from tracecomp.record.pytree import flatten, unflatten

Function = Callable[..., Any]


def cond(pred: object, true_fn: Function, false_fn: Function, operands: Sequence[object] = ()) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``; only the chosen one is computed.

    ``pred`` is a tensor of one element, or a Python number, which simply chooses. RuntimeError when the branches return
    different structures, dtypes or shapes.
    """
    if isinstance(pred, bool | int | float):
        return (true_fn if pred else false_fn)(*operands)
    if not isinstance(pred, Tensor) or pred.numel() != 1:
        raise _error(f"cond: Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise _error("cond: Expect both branches to be callable.")
    structure, leaves = _arguments("cond", "operands", operands)
    then = _trace("cond", "true_fn", true_fn, structure, leaves)
    orelse = _trace("cond", "false_fn", false_fn, structure, leaves)
    if then.structure != orelse.structure:
        raise _error("cond: true_fn and false_fn return different structures of tensors")
    consts = _captured(then, orelse)
    graphs = {"then": then.graph(consts), "orelse": orelse.graph(consts)}
    predicate = T.reshape(pred, ()).bool()
    return unflatten(then.structure, _apply("cond", (predicate, *leaves, *consts), graphs))


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Sequence[object]) -> Any:
    """Replace ``carried_inputs`` by ``body_fn(*carried_inputs)`` while ``cond_fn(*carried_inputs)`` is true; return a
    tuple.

    Gradients reach the first carries and the tensors that ``body_fn`` reads; the backward pass repeats steps.
    RuntimeError if ``cond_fn`` does not return a 0-d bool tensor, or the results of ``body_fn`` do not match its
    arguments.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise _error("while_loop: Expect cond_fn and body_fn to be callable.")
    structure, leaves = _arguments("while_loop", "carried_inputs", carried_inputs)
    test = _trace("while_loop", "cond_fn", cond_fn, structure, leaves, differentiated=False)
    body = _trace("while_loop", "body_fn", body_fn, structure, leaves)
    if body.structure[1:] != structure[1:] or body.structure[0] not in (tuple, list):
        raise _error("while_loop: body_fn must return a tuple with the structure of carried_inputs")
    consts = _captured(test, body)
    attrs = {"test": test.graph(consts), "body": body.graph(consts), "carries": len(leaves)}
    return unflatten(structure, _apply("while_loop", (*leaves, *consts), attrs))


def scan(combine_fn: Function, init: object, xs: object, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """The carry after ``carry, y = combine_fn(carry, x)`` for each slice x of ``xs`` along ``dim``, and the ys stacked.

    ``init``, ``xs`` and ``y`` are tensors or nested tensors. ys are stacked along ``dim`` (along the first axis if they
    have no such axis), in the order of xs. The order is the same even if ``reverse`` starts at the end. RuntimeError
    when the carry changes its structure, dtype or shape.
    """
    if not callable(combine_fn):
        raise _error(f"scan: combine_fn must be a callable, but got {combine_fn}")
    structure, leaves = _flat("scan", "init", init)
    xs_structure, xs_leaves = _flat("scan", "xs", xs)
    if not xs_leaves:
        return init, []
    if not leaves:
        raise _error("scan: scan() operator requires init leaves.")
    moved = _scanned(xs_leaves, dim)
    length = moved[0].shape[0]
    slices = [x[length - 1 if reverse else 0] for x in moved]
    body = _trace("scan", "combine_fn", combine_fn, (tuple, structure, xs_structure), [*leaves, *slices])
    if body.structure[0] not in (tuple, list) or len(body.structure) != 3:
        raise _error("scan: combine_fn must return a pair, the next carry and a result")
    if body.structure[1] != structure:
        raise _error("scan: combine_fn must return a carry with the structure of init")
    consts = _captured(body)
    attrs = {
        "body": body.graph(consts), "carries": len(leaves), "xs": len(moved), "length": length,
        "reverse": bool(reverse),
    }  # fmt: skip
    found = _apply("scan", (*leaves, *moved, *consts), attrs)
    axis = dim % xs_leaves[0].ndim
    stacked = [T.movedim(y, 0, axis) if 0 < axis < y.ndim else y for y in found[len(leaves) :]]
    return unflatten(structure, found[: len(leaves)]), unflatten(body.structure[2], stacked)


def _error(message: str) -> RuntimeError:
    return RuntimeError(at_user_line(message))


def _flat(operator: str, what: str, value: object) -> tuple[Any, list[Tensor]]:
    """Structure and leaves of ``value``, which are tensors."""
    leaves: list[Any] = []
    structure = flatten(value, leaves)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise _error(f"{operator}: {what} must consist of tensors, got {type(leaf).__name__}")
    return structure, leaves


def _arguments(operator: str, what: str, value: object) -> tuple[Any, list[Tensor]]:
    """Structure and leaves of a tuple or list of arguments, as a tuple."""
    if not isinstance(value, tuple | list):
        raise _error(f"{operator}: expect {what} to be a tuple of tensors, got {type(value).__name__}")
    return _flat(operator, what, tuple(value))


def _scanned(leaves: Sequence[Tensor], dim: int) -> list[Tensor]:
    """The tensors with the axis to scan in front; IndexError when the first has no such axis."""
    first = leaves[0].ndim
    if not -first <= dim < first:
        raise IndexError(at_user_line(f"scan: dim {dim} is out of range for xs with {first} axes"))
    axis = dim % first
    if any(x.ndim <= axis or x.shape[axis] == 0 for x in leaves):
        raise _error("scan: All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    return [T.movedim(x, axis, 0) if axis else x for x in leaves]


@dataclass(frozen=True, slots=True)
class _Traced:
    """A function as a graph: the values of its arguments and results, and the outer tensors that it reads."""

    source: Graph
    arguments: list[Value]
    results: list[Value]
    structure: Any
    captured: dict[int, tuple[Tensor, Value]]

    def graph(self, consts: Sequence[Tensor]) -> Graph:
        """The body of the operator, which takes the arguments and then ``consts``."""
        graph = Graph(self.source.name)
        known = {v: graph.add_input(v.type, f"in{i}") for i, v in enumerate(self.arguments)}
        for i, t in enumerate(consts):
            value = graph.add_input(TensorType(t.dtype, t._data.shape), f"const{i}")
            if id(t) in self.captured:
                known[self.captured[id(t)][1]] = value
        for given in self.source.inputs:
            if given.role == "constant":
                known[given.value] = graph.add_input(given.value.type, given.name, "constant", given.data)
        for node in self.source.live_nodes():
            operands = [known[v] for v in node.inputs]
            graph.here = self.source.origin.get(node, Origin())
            made = operands if node.op in (DETACH, NO_GRAD) else graph.add(node.op, operands, node.attrs)
            known.update(zip(node.outputs, made, strict=True))
        for value in self.results:
            graph.add_output(known[value])
        return graph


def _trace(
    operator: str, role: str, func: Function, structure: object, given: Sequence[Tensor], differentiated: bool = True
) -> _Traced:
    """``func`` traced on copies of ``given``, its arguments once nested in a tuple like ``structure``."""
    examples = [_example(x) for x in given]
    trace = Trace(role, modes.recorder)
    leaves, results = traced(trace, func, unflatten(structure, examples), {}, examples)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise _error(f"{operator}: {role} must return tensors only, got {type(leaf).__name__}")
    values = [trace.value(leaf) for leaf in leaves]
    _refuse_effects(operator, role, trace)
    for value in values:
        trace.graph.add_output(value)
    # Tensors that are not arguments came by closure: they become operands, so that gradients reach them.
    captured = {
        k: (trace.values.outside[k], v) for k, v in trace.inputs.initial.items() if k not in trace.inputs.arguments
    }
    arguments = [trace.inputs.initial[id(x)] for x in examples]
    trace.forget()
    found = _Traced(trace.graph, arguments, values, results, captured)
    read = [*given, *(t for t, _ in captured.values())]
    tracked = differentiated and modes.grad and any(x.requires_grad for x in read)
    ended = {n.op for n in trace.graph.live_nodes() if n.op in (DETACH, NO_GRAD) and _floating(n.outputs)}
    if (tracked and ended) or (DETACH in ended and modes.levels and has_tangent(read)):
        raise _error(f"{operator}: {role} uses detach() or no_grad(), which are supported only outside of {operator}")
    return found


def _example(x: Tensor) -> Tensor:
    """A copy that requires grad: a carry may have a history from its second step on."""
    with unrecorded():
        return Tensor._wrap(np.array(x._data)).requires_grad_(modes.grad and x.dtype.differentiable)


def _floating(values: Sequence[Value]) -> bool:
    return values[0].dtype.differentiable


def _refuse_effects(operator: str, role: str, trace: Trace) -> None:
    """RuntimeError for what a region cannot hold: writes, random numbers, Python that depends on values."""
    written = trace.written()
    if any(t is default_generator.state for t in written):
        raise _error(f"{operator}: {role} draws random numbers; draw them outside and pass them as operands")
    if written or trace.wrote_grad():
        raise _error(f"{operator}: {role} might be modifying its inputs or outer tensors")
    if trace.predicates:
        raise _error(
            f"{operator}: {role} uses the value of a tensor in Python control flow or calls .item(), at "
            f"{trace.predicates[0].source}; use cond or where instead"
        )


def _captured(*traces: _Traced) -> list[Tensor]:
    """Tensors that any of the functions reads from around it."""
    return list({key: t for each in traces for key, (t, _) in each.captured.items()}.values())


def _apply(name: str, operands: tuple[Tensor, ...], attrs: Attrs) -> Sequence[Tensor]:
    """The results of a control operator, its types checked before it runs."""
    check_types(OPS[name], operands, attrs if modes.recorder is None else modes.recorder.sizes.without_sizes(attrs))
    found = getattr(prim, name)(*operands, **attrs)
    return found if isinstance(found, tuple) else (found,)
