"""Making a batch of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float64

Rules = Mapping[type | tuple[type, ...], Callable[..., Any]]


def _array(batch: Any, *, collate_fn_map: Rules | None = None) -> Any:
    return T.stack([T.as_tensor(x) for x in batch])


def _scalar_array(batch: object, *, collate_fn_map: Rules | None = None) -> Any:
    return T.as_tensor(np.asarray(batch))


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: lambda batch, *, collate_fn_map=None: T.stack(list(batch)),
    np.ndarray: _array,
    (np.bool_, np.number): _scalar_array,
    float: lambda batch, *, collate_fn_map=None: T.tensor(batch, dtype=float64),
    int: lambda batch, *, collate_fn_map=None: T.tensor(batch),
    str: lambda batch, *, collate_fn_map=None: batch,
    bytes: lambda batch, *, collate_fn_map=None: batch,
}


def collate(batch: Sequence[Any], *, collate_fn_map: Rules | None = None) -> Any:
    """Items to one batch by the rules of ``collate_fn_map``; containers are taken apart. TypeError for other types."""
    first = batch[0]
    for kind, rule in (collate_fn_map or {}).items():
        if isinstance(first, kind):
            return rule(batch, collate_fn_map=collate_fn_map)

    def inner(column: Any) -> Any:
        return collate(column, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        merged = {key: inner([item[key] for item in batch]) for key in first}
        return type(first)(merged) if type(first) is not dict else merged  # type: ignore[call-arg]
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(inner(column) for column in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [inner(column) for column in zip(*batch, strict=True)]
        try:
            return columns if isinstance(first, tuple) else type(first)(columns)  # type: ignore[call-arg]
        except TypeError:  # a sequence that is not made of its items, such as a range
            return columns
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )


def default_collate(batch: Sequence[object]) -> Any:
    """Items to one batch: tensors are stacked, numbers become tensors, containers are taken apart."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: object) -> Any:
    """One item with its arrays as tensors: the item of a loader without batches."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return T.as_tensor(data)
    if isinstance(data, Mapping):
        return type(data)({k: default_convert(v) for k, v in data.items()})  # type: ignore[call-arg]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(v) for v in data))
    if isinstance(data, list | tuple):
        return [default_convert(v) for v in data]
    return data
