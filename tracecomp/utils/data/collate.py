"""Making a batch of items."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.device import strided
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float64

Rules = Mapping[type | tuple[type, ...], Callable[..., Any]]


np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""Kinds of numpy's dtypes that are not numbers."""
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Rules | None = None) -> Any:
    """Stack tensors. RuntimeError for sparse tensors."""
    if batch[0].layout is not strided:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; please provide a "
            "custom collate_fn to handle them appropriately."
        )
    return T.stack(list(batch))


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Rules | None = None) -> Any:
    """Stack arrays as tensors. TypeError for arrays of objects and of text."""
    if np_str_obj_array_pattern.search(batch[0].dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([T.as_tensor(x) for x in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence[object], *, collate_fn_map: Rules | None = None) -> Any:
    """Make a tensor of numpy's numbers."""
    return T.as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: Rules | None = None) -> Any:
    """Make a float64 tensor of floats."""
    return T.tensor(batch, dtype=float64)


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: Rules | None = None) -> Any:
    """Make a tensor of integers."""
    return T.tensor(batch)


def collate_str_fn(batch: object, *, collate_fn_map: Rules | None = None) -> Any:
    """Return texts as they are."""
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def _mapping_like(like: Mapping[object, object], values: dict[object, object]) -> Any:
    """``values`` in a mapping of the type of ``like``, with its other attributes; a dict if it cannot be made."""
    kind: Any = type(like)
    try:
        if not isinstance(like, MutableMapping):
            return kind(values)
        result: Any = copy.copy(like)
        result.update(values)
        return result
    except TypeError:
        return values


def _sequence_like(like: Sequence[object], values: list[object]) -> Any:
    """``values`` in a sequence of the type of ``like``, with its other attributes; a list if it cannot be made."""
    kind: Any = type(like)
    try:
        if not isinstance(like, MutableSequence):
            return kind(values)
        result: Any = copy.copy(like)
        for i, value in enumerate(values):
            result[i] = value
        return result
    except TypeError:  # a sequence that is not made of its items, such as a range
        return values


def collate(batch: Sequence[Any], *, collate_fn_map: Rules | None = None) -> Any:
    """Items to one batch by the rules of ``collate_fn_map``; containers are taken apart. TypeError for other types."""
    first: Any = batch[0]
    rules = collate_fn_map or {}
    rule = rules.get(type(first)) or next((rule for kind, rule in rules.items() if isinstance(first, kind)), None)
    if rule is not None:
        return rule(batch, collate_fn_map=collate_fn_map)

    def inner(column: Any) -> Any:
        return collate(column, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        for item in batch:
            if isinstance(item, Mapping) and (missing := first.keys() - item.keys()):
                raise KeyError(f"default_collate(): a dict of the batch has no key {missing.pop()!r}")
        return _mapping_like(first, {key: inner([item[key] for item in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(inner(column) for column in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [inner(column) for column in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _sequence_like(first, columns)
    check_takes("default_collate", (type(first),))
    raise TypeError(default_collate_err_msg_format.format(type(first)))


def default_collate(batch: Sequence[object]) -> Any:
    """Items to one batch: tensors are stacked, numbers become tensors, containers are taken apart."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: object) -> Any:
    """One item with its arrays as tensors: the item of a loader without batches."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        text = np_str_obj_array_pattern.search(data.dtype.str) is not None
        return data if text else T.as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping_like(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple):
        values = [default_convert(v) for v in data]
        return type(data)(*values) if hasattr(data, "_fields") else values
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _sequence_like(data, [default_convert(v) for v in data])
    return data
