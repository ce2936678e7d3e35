"""Batching rules of primitives: each kind of primitive on a batch of examples, with one more leading axis.

A rule takes operands, some of which have the batch as axis 0, and returns results with the batch as axis 0. Rules are
written with ``prim``, so their computations can be run, recorded or differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.primitives import prim
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym


class Batch:
    """A value that carries ``size`` examples along axis 0."""

    __slots__ = ("value",)

    def __init__(self, value: Tensor | Sym) -> None:
        self.value: Any = value  # rules read both alike


Rule = Callable[[int, Node, list[Any]], Any]


def batched_node(size: int, node: Node, operands: list[Any]) -> list[Any]:
    """The results of ``node`` on operands of which some are a ``Batch``; results are batches then too."""
    if not any(isinstance(x, Batch) for x in operands):
        found = getattr(prim, node.op.name)(*operands, **node.attrs)
        return list(found) if isinstance(found, tuple) else [found]
    rule = _BY_NAME.get(node.op.name) or _BY_KIND.get(node.op.kind)
    if rule is None:
        raise NotImplementedError(f"vmap: no batching rule for {node.op.name}")
    found = rule(size, node, operands)
    return [Batch(x) for x in (found if isinstance(found, tuple | list) else [found])]


def whole(size: int, x: Tensor | Batch) -> Any:
    """The batch of ``x``; a value without a batch is repeated."""
    return x.value if isinstance(x, Batch) else prim.expand(_reshape(x, (1, *x.shape)), shape=(size, *x.shape))


def _reshape(x: Tensor, shape: Sequence[int]) -> Any:
    return x if tuple(x.shape) == tuple(shape) else prim.reshape(x, shape=tuple(shape))


def _to_front(x: Tensor, axis: int) -> Any:
    order = (axis, *(i for i in range(x.ndim) if i != axis))
    return x if axis == 0 else prim.permute(x, dims=order)


def _second(x: Tensor) -> Any:
    """The leading axis made the second."""
    return prim.permute(x, dims=(1, 0, *range(2, x.ndim)))


def _rank(x: Any) -> int:
    return x.value.ndim - 1 if isinstance(x, Batch) else x.ndim  # type: ignore[no-any-return]


def _aligned(x: Tensor, rank: int) -> Any:
    """A batch with axes of size 1 behind the first, so that examples broadcast as ones of ``rank`` axes."""
    if not isinstance(x, Batch):
        return x
    size, *rest = x.value.shape
    return _reshape(x.value, (size, *(1,) * (rank - len(rest)), *rest))


def _elementwise(size: int, node: Node, operands: list[Any]) -> Any:
    rank = max(map(_rank, operands))
    return getattr(prim, node.op.name)(*(_aligned(x, rank) for x in operands), **node.attrs)


def _over_axes(size: int, node: Node, operands: list[Any]) -> Any:
    """Reductions and transforms: ``axes`` count from the example's first axis."""
    axes = tuple(a + 1 for a in node.attrs["axes"])
    return getattr(prim, node.op.name)(operands[0].value, **{**node.attrs, "axes": axes})


def _along_axis(size: int, node: Node, operands: list[Any]) -> Any:
    """Operators along one ``axis`` over operands that all carry the batch."""
    everything = [whole(size, x) for x in operands]
    return getattr(prim, node.op.name)(*everything, **{**node.attrs, "axis": node.attrs["axis"] + 1})


def _leading(**first: int | None) -> Rule:
    """Operators whose attributes have an entry per axis: ``first`` is that of the batch's axis."""

    def rule(size: int, node: Node, operands: list[Any]) -> Any:
        attrs = dict(node.attrs)
        for name, value in first.items():
            attrs[name] = (size if value is None else value, *attrs[name])
        return getattr(prim, node.op.name)(*(whole(size, x) for x in operands), **attrs)

    return rule


def _permute(size: int, node: Node, operands: list[Any]) -> Any:
    return prim.permute(operands[0].value, dims=(0, *(d + 1 for d in node.attrs["dims"])))


def _expand(size: int, node: Node, operands: list[Any]) -> Any:
    shape = node.attrs["shape"]
    return prim.expand(_aligned(operands[0], len(shape)), shape=(size, *shape))


def _flip(size: int, node: Node, operands: list[Any]) -> Any:
    return prim.flip(operands[0].value, axes=tuple(a + 1 for a in node.attrs["axes"]))


def _windows(size: int, node: Node, operands: list[Any]) -> Any:
    return prim.windows(operands[0].value, **node.attrs)


def _contract(size: int, node: Node, operands: list[Any]) -> Any:
    spec = node.attrs["spec"]
    inputs, out = spec.split("->")
    label = next(c for c in ascii_letters if c not in spec)
    marked = [label + s if isinstance(x, Batch) else s for s, x in zip(inputs.split(","), operands, strict=True)]
    plain = [x.value if isinstance(x, Batch) else x for x in operands]
    return prim.contract(*plain, spec=f"{','.join(marked)}->{label}{out}")


def _convolution(size: int, node: Node, operands: list[Any]) -> Any:
    """Examples join the images where only these differ; otherwise they are groups of channels."""
    x, w = operands
    apply = getattr(prim, node.op.name)
    if not isinstance(w, Batch):
        n = x.value.shape[1]
        found = apply(_reshape(x.value, (size * n, *x.value.shape[2:])), w, **node.attrs)
        return _reshape(found, (size, n, *found.shape[1:]))
    kernels = _reshape(w.value, (size * w.value.shape[1], *w.value.shape[2:]))
    grouped = {**node.attrs, "groups": node.attrs["groups"] * size}
    return _from_channel(size, apply(_by_channel(whole(size, x)), kernels, **grouped))


def _convolution_weight(size: int, node: Node, operands: list[Any]) -> Any:
    x, g = (_by_channel(whole(size, t)) for t in operands)
    found = prim.conv_weight(x, g, **{**node.attrs, "groups": node.attrs["groups"] * size})
    return _reshape(found, (size, found.shape[0] // size, *found.shape[1:]))


def _by_channel(x: Tensor) -> Any:
    """(B, N, C, ...) as (N, B C, ...)."""
    size, n, c, *rest = x.shape
    return _reshape(prim.permute(x, dims=(1, 0, *range(2, x.ndim))), (n, size * c, *rest))


def _from_channel(size: int, x: Tensor) -> Any:
    n, channels, *rest = x.shape
    split = _reshape(x, (n, size, channels // size, *rest))
    return prim.permute(split, dims=(1, 0, *range(2, split.ndim)))


def _take(size: int, node: Node, operands: list[Any]) -> Any:
    (x, at), axis = operands, node.attrs["axis"]
    if not isinstance(at, Batch):
        return prim.take(x.value, at, axis=axis + 1)
    if not isinstance(x, Batch):
        return _to_front(prim.take(x, at.value, axis=axis), axis)
    found = prim.gather(x.value, _spread(at.value, x.value.shape, axis + 1), axis=axis + 1)
    return _reshape(found, (size, *x.value.shape[1 : axis + 1], *at.value.shape[1:], *x.value.shape[axis + 2 :]))


def _spread(at: Any, shape: Sequence[int], axis: int) -> Any:
    """Indices (B, ...) for ``axis`` of a batch of ``shape``, the same along all its other axes."""
    size, count = at.shape[0], math.prod(at.shape[1:])
    line = [1] * len(shape)
    line[0], line[axis] = size, count
    spread = (*shape[:axis], count, *shape[axis + 1 :])
    return prim.expand(_reshape(at, line), shape=spread)


def _put(size: int, node: Node, operands: list[Any]) -> Any:
    (base, at, src), axis, mode = operands, node.attrs["axis"], node.attrs["mode"]
    base, src = whole(size, base), whole(size, src)
    if not isinstance(at, Batch):
        return prim.put(base, at, src, axis=axis + 1, mode=mode)
    places = _spread(at.value, base.shape, axis + 1)
    return prim.scatter(base, places, _reshape(src, places.shape), axis=axis + 1, mode=mode)


def _reshape_rule(size: int, node: Node, operands: list[Any]) -> Any:
    return _reshape(operands[0].value, (size, *node.attrs["shape"]))


def _every_operand(size: int, node: Node, operands: list[Any]) -> Any:
    """Operators that treat all leading axes as a batch."""
    return getattr(prim, node.op.name)(*(whole(size, x) for x in operands), **node.attrs)


def _one_by_one(size: int, node: Node, operands: list[Any]) -> Any:
    """Operators without a form for batches: one call for each example, and the results side by side."""
    found = []
    for k in range(size):
        own = [_example(x.value, k) if isinstance(x, Batch) else x for x in operands]
        result = getattr(prim, node.op.name)(*own, **node.attrs)
        found.append(_reshape(result, (1, *result.shape)))
    return prim.concat(*found, axis=0)


def _example(x: Any, k: int) -> Any:
    starts, stops = (k, *(0,) * (x.ndim - 1)), (k + 1, *x.shape[1:])
    return _reshape(prim.slice(x, starts=starts, stops=stops, steps=(1,) * x.ndim), x.shape[1:])


def batched_body(size: int, body: Graph) -> Graph:
    """``body`` for examples along axis 0 of everything it takes and gives."""
    graph = Graph(f"{body.name}_batched")
    values: dict[Any, Any] = {}
    for given in body.inputs:
        kind = given.value.type
        if given.role == "constant":
            values[given.value] = Sym(graph, graph.add_input(kind, given.name, "constant", given.data))
        else:
            kind = TensorType(kind.dtype, (size, *kind.shape))
            values[given.value] = Batch(Sym(graph, graph.add_input(kind, given.name)))
    for node in body.live_nodes():
        if not node.inputs:
            made = [Sym(graph, v) for v in graph.add(node.op, (), node.attrs)]
        else:
            made = batched_node(size, node, [values[v] for v in node.inputs])
        values.update(zip(node.outputs, made, strict=True))
    for output in body.outputs:
        graph.add_output(whole(size, values[output.value]).value, output.name)
    return graph


def _scan(size: int, node: Node, operands: list[Any]) -> Any:
    """Everything carries the batch; along the scanned axis it comes second."""
    a = node.attrs
    carries, xs = a["carries"], a["xs"]
    given = [whole(size, x) for x in operands]
    given[carries : carries + xs] = [_second(x) for x in given[carries : carries + xs]]
    found = prim.scan(*given, **{**a, "body": batched_body(size, a["body"])})
    return [*found[:carries], *(_to_front(y, 1) for y in found[carries:])]


def _cond(size: int, node: Node, operands: list[Any]) -> Any:
    """One branch for all examples, or both and a choice where examples differ."""
    predicate, *rest = operands
    given = [whole(size, x) for x in rest]
    then, orelse = (batched_body(size, node.attrs[name]) for name in ("then", "orelse"))
    if not isinstance(predicate, Batch):
        return prim.cond(predicate, *given, then=then, orelse=orelse)
    always = prim.full(like=predicate.value, value=True, shape=(), dtype=predicate.value.dtype)
    taken, other = (prim.cond(always, *given, then=b, orelse=b) for b in (then, orelse))
    pairs = zip(taken, other, strict=True) if isinstance(taken, tuple) else [(taken, other)]
    return [prim.where(_aligned_to(predicate.value, a.ndim), a, b) for a, b in pairs]


def _aligned_to(predicate: Any, ndim: int) -> Any:
    return _reshape(predicate, (*predicate.shape, *(1,) * (ndim - predicate.ndim)))


_BY_KIND: dict[str, Rule] = {
    "elementwise": _elementwise, "reduction": _over_axes, "concat": _along_axis, "cumulative": _along_axis,
    "sort": _along_axis, "contraction": _contract, "convolution": _convolution, "external": _every_operand,
    "elimination": _every_operand,
}  # fmt: skip
_BY_NAME: dict[str, Rule] = {
    "reshape": _reshape_rule, "permute": _permute, "expand": _expand, "flip": _flip, "windows": _windows,
    "slice": _leading(starts=0, stops=None, steps=1), "slice_update": _leading(starts=0, stops=None, steps=1),
    "pad": _leading(low=0, high=0, interior=0), "fold": _leading(shape=None),
    "conv_weight": _convolution_weight, "take": _take, "put": _put, "gather": _along_axis, "scatter": _along_axis,
    "scan": _scan, "cond": _cond, "grouped_mm": _one_by_one,
    **dict.fromkeys(
        ("diagonal", "real", "imag", "view_as_real", "view_as_complex", "reinterpret", "searchsorted", "dft"),
        _every_operand,
    ),
    **dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r"), _over_axes),
}  # fmt: skip
