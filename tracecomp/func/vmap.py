"""``vmap``: a function of one example as a function of a batch.

The function runs once, on the first example, and is recorded; the graph is then run for all examples with one more axis
(``batching``). Any Python inside is supported, and the result is ordinary tensor code: eager, recorded by ``compile``,
differentiable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tangents import apart
from tracecomp.eager.tensor import Tensor
from tracecomp.func.batching import Batch, batched_node, whole
from tracecomp.func.trace import DETACH, NO_GRAD, Trace, traced
from tracecomp.functional.primitives import prim
from tracecomp.ir.graph import Node, Value
from tracecomp.record.pytree import flatten, unflatten

RANDOMNESS = ("error", "different", "same")

CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow, or to call .item() on "
    "it, which vmap cannot do for every example: the value at {source} differs between examples. Use where instead."
)


def vmap(
    func: Callable[..., object], in_dims: object = 0, out_dims: object = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """``func`` of one example as a function of all examples along ``in_dims``.

    ``in_dims`` and ``out_dims`` are axes, or nested like the arguments and results; None: the same for all examples.
    ``randomness`` says what random functions do: raise, draw for each example, or draw once. ValueError for sizes
    that differ; RuntimeError when Python asks for a value that differs between examples.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        dims = [*_per_leaf(in_dims, args, "in_dims"), *([0] * (len(leaves) - _count(args)))]
        size = _batch_size(leaves, dims)
        axes = [None if d is None else _axis(d, x) for d, x in zip(dims, leaves, strict=True)]
        if chunk_size is None or chunk_size >= size:
            return _map(func, structure, leaves, axes, size, out_dims, randomness)
        pieces = []
        for start in range(0, size, chunk_size):
            stop = min(start + chunk_size, size)
            piece = [x if a is None else _cut(x, a, start, stop) for x, a in zip(leaves, axes, strict=True)]
            pieces.append(_map(func, structure, piece, axes, stop - start, out_dims, randomness))
        return _joined(pieces, out_dims)

    return mapped


def _count(value: object) -> int:
    leaves: list[Any] = []
    flatten(value, leaves)
    return len(leaves)


def _per_leaf(dims: Any, value: Any, name: str) -> list[int | None]:
    """``dims``, an axis or nested like ``value``, as one axis per leaf."""
    if dims is None or isinstance(dims, int):
        return [dims] * _count(value)
    if isinstance(value, dict):
        matched = isinstance(dims, dict) and dims.keys() == value.keys()
        pairs = [(dims[k], value[k]) for k in value] if matched else None
    else:
        matched = isinstance(dims, tuple | list) and isinstance(value, tuple | list) and len(dims) == len(value)
        pairs = list(zip(dims, value, strict=True)) if matched else None
    if pairs is None:
        raise ValueError(f"vmap: {name} {dims!r} is not compatible with the structure of its argument")
    return [d for part, v in pairs for d in _per_leaf(part, v, name)]


def _batch_size(leaves: Sequence[object], dims: Sequence[int | None]) -> int:
    sizes = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap: Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
                "arguments, please use None as the respective in_dim"
            )
        sizes.append(x._data.shape[_axis(d, x)])
    if not sizes:
        raise ValueError("vmap: at least one input has to be mapped over: all in_dims are None or there are no inputs")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    if sizes[0] == 0:
        raise ValueError("vmap: there are no examples: the mapped dimension has size 0")
    return sizes[0]  # type: ignore[no-any-return]


def _axis(d: int, x: Tensor) -> int:
    ndim = x._data.ndim if isinstance(x, Tensor) else 0
    if isinstance(x, Tensor) and not -ndim <= d < ndim:
        raise ValueError(
            f"vmap: Got in_dim={d} for some input, but that input is a Tensor of dimensionality {ndim} so expected "
            f"in_dim to satisfy -{ndim} <= in_dim < {ndim}."
        )
    return d % ndim if ndim else d


def _cut(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    shape = x._data.shape
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    stops = tuple(stop if i == axis else n for i, n in enumerate(shape))
    return prim.slice(x, starts=starts, stops=stops, steps=(1,) * len(shape))


def _joined(pieces: list[object], out_dims: object) -> Any:
    columns: list[list[Any]] = []
    for piece in pieces:
        leaves: list[Any] = []
        structure = flatten(piece, leaves)
        columns.append(leaves)
    dims = _per_leaf(out_dims, pieces[0], "out_dims")
    found = [
        parts[0] if d is None else prim.concat(*parts, axis=d % parts[0].ndim)
        for d, parts in zip(dims, zip(*columns, strict=True), strict=True)
    ]
    return unflatten(structure, found)


def _map(
    func: Callable[..., Any], structure: Any, leaves: Sequence[Any], axes: Sequence[int | None], size: int,
    out_dims: Any, randomness: str,
) -> Any:  # fmt: skip
    examples = [x if a is None else _first(x, a) for x, a in zip(leaves, axes, strict=True)]
    batches = {
        id(e): x if a == 0 else prim.permute(x, dims=(a, *(i for i in range(x.ndim) if i != a)))
        for e, x, a in zip(examples, leaves, axes, strict=True)
        if a is not None
    }
    trace = Trace("vmap", modes.recorder)
    args, kwargs = unflatten(structure, examples)
    results, result_structure = traced(trace, func, args, kwargs, [x for x in examples if id(x) in batches])
    values = _values(trace, func, results)
    run = _Run(trace, batches, size, randomness)
    found = run.values(values)
    dims = _per_leaf(out_dims, unflatten(result_structure, results), "out_dims")
    placed = [_placed(found[v], size, d) for v, d in zip(values, dims, strict=True)]
    return unflatten(result_structure, placed)


def _first(x: Tensor, axis: int) -> Tensor:
    """The first example, copied to new memory."""
    example = Tensor._wrap(np.array(x._data.take(0, axis=axis)))
    with unrecorded():
        return example.requires_grad_(x.requires_grad)


def _values(trace: Trace, func: Callable[..., object], results: Sequence[Any]) -> list[Value]:
    """The graph values of the results."""
    for leaf in results:
        if not isinstance(leaf, Tensor):
            name = getattr(func, "__name__", repr(func))
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)} as a return."
            )
    if trace.wrote_grad():
        raise RuntimeError("vmap: backward() inside of a mapped function would write .grad; use func.grad instead.")
    if any(id(t) not in trace.inputs.arguments and t is not default_generator.state for t in trace.written()):
        raise RuntimeError(
            "vmap: inplace arithmetic on a tensor that is not an argument of the mapped function is not possible: "
            "every example would write to it."
        )
    return [trace.value(leaf) for leaf in results]


def _placed(x: Any, size: int, dim: int | None) -> Tensor:
    """A result with its examples along ``dim``."""
    if dim is None:
        if isinstance(x, Batch):
            raise ValueError("vmap: out_dims must be an int for a result that depends on a batched input, got None")
        return x  # type: ignore[no-any-return]
    batch = whole(size, x)
    dim = dim % batch.ndim
    order = [*range(1, batch.ndim)]
    order.insert(dim, 0)
    return batch if dim == 0 else prim.permute(batch, dims=tuple(order))


class _Run:
    """The trace's graph run for all examples."""

    def __init__(self, trace: Trace, batches: dict[int, Any], size: int, randomness: str) -> None:
        self.trace = trace
        self.size = size
        self.randomness = randomness
        self.known: dict[Value, Any] = {}
        for key, value in trace.inputs.initial.items():
            self.known[value] = Batch(batches[key]) if key in batches else trace.values.outside[key]
        for given in trace.graph.inputs:
            if given.role == "constant" and given.data is not None:
                self.known[given.value] = Tensor._wrap(given.data)
                if modes.recorder is not None:
                    modes.recorder.constant(self.known[given.value])

    def values(self, wanted: list[Value]) -> dict[Value, Any]:
        """Every wanted value, a ``Batch`` where it differs between examples."""
        graph = self.trace.graph
        for v in wanted:
            graph.add_output(v)
        for p in self.trace.predicates:
            graph.add_output(p.value)
        self.trace.forget()
        for node in graph.live_nodes():
            self.known.update(zip(node.outputs, self._results(node), strict=True))
        for p in self.trace.predicates:
            found = self.known[p.value]
            if isinstance(found, Batch):
                raise RuntimeError(CONTROL_FLOW.format(source=p.source))
            if modes.recorder is not None:
                modes.recorder.observe(found, p.seen)
        return {v: self.known[v] for v in wanted}

    def _results(self, node: Node) -> list[Any]:
        operands = [self.known[v] for v in node.inputs]
        if node.op is DETACH or node.op is NO_GRAD:
            (x,) = operands
            ended = Tensor.detach if node.op is DETACH else partial(apart, history=False)
            return [Batch(ended(x.value)) if isinstance(x, Batch) else ended(x)]
        if node.op.kind == "random":
            return [self._drawn(node.attrs["shape"])]
        if not operands:
            return [Tensor.__tracecomp_apply__(node.op, (), node.attrs)]
        return batched_node(self.size, node, operands)

    def _drawn(self, shape: tuple[int, ...]) -> Any:
        if self.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if self.randomness == "same":
            return default_generator.bits(shape)
        return Batch(default_generator.bits((self.size, *shape)))
