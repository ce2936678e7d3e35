"""``vmap``: a function of one example as a function of a batch.

The function runs once, on the first example, and is recorded. An empty batch has an example of zeros. The graph is then
run for all examples with one more axis (``batching``). Any Python inside is supported, and the result is ordinary
tensor code: eager, recorded by ``compile``, differentiable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.eager.tensor import Tensor
from tracecomp.func.batching import Batch, whole
from tracecomp.func.custom_functions import VmapInfo, per_leaf
from tracecomp.func.mapped_trace import mapped
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.primitives import prim
from tracecomp.record.pytree import flatten, unflatten

RANDOMNESS = ("error", "different", "same")


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
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        positional = per_leaf(in_dims, args, "in_dims")
        dims = [*positional, *([0] * (len(leaves) - len(positional)))]
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

    return run


def _batch_size(leaves: Sequence[object], dims: Sequence[int | None]) -> int:
    sizes = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap: Got in_dim={d} for an input but the input is of type {type_name(x)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        sizes.append(x._data.shape[_axis(d, x)])
    if not sizes:
        raise ValueError("vmap: at least one input has to be mapped over: all in_dims are None or there are no inputs")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
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
    dims = per_leaf(out_dims, pieces[0], "out_dims")
    found = [
        parts[0] if d is None else prim.concat(*parts, axis=d % parts[0].ndim)
        for d, parts in zip(dims, zip(*columns, strict=True), strict=True)
    ]
    return unflatten(structure, found)


def _map(
    func: Callable[..., Any], structure: Any, leaves: Sequence[Any], axes: Sequence[int | None], size: int,
    out_dims: Any, randomness: str,
) -> Any:  # fmt: skip
    result_structure, results = mapped(func, structure, leaves, axes, VmapInfo(size, randomness))
    for leaf in results:
        if not isinstance(leaf, Tensor | Batch):
            name = getattr(func, "__name__", repr(func))
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)} as a return."
            )
    dims = per_leaf(out_dims, unflatten(result_structure, results), "out_dims")
    placed = [_placed(x, size, d) for x, d in zip(results, dims, strict=True)]
    return unflatten(result_structure, placed)


def _placed(x: Any, size: int, dim: int | None) -> Tensor:
    """A result with its examples along ``dim``."""
    if dim is None:
        if isinstance(x, Batch):
            raise ValueError("vmap: out_dims must be an int for a result that depends on a batched input, got None")
        return x  # type: ignore[no-any-return]
    batch = whole(size, x)
    dim = wrap_dim(dim, batch.ndim)
    order = [*range(1, batch.ndim)]
    order.insert(dim, 0)
    return batch if dim == 0 else prim.permute(batch, dims=tuple(order))
