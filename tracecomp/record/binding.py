"""Bindings of a recording's inputs, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.record.pytree import Leaves

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """The source of a graph input.

    The kinds, each with its ``ref``:

    * ``argument``: the leaf number;
    * ``memory``: the memory shared by several tensors;
    * ``state``: the tensor;
    * ``place``: the place, and the index of its tensor;
    * ``grad``: the binding of the tensor whose gradient it is;
    * ``host``: owner and key;
    * ``size``: the holder and the axis;
    * ``number``: the leaf.

    Inputs of a recording are in this order.
    """

    kind: str
    ref: Any


def read(binding: Binding, leaves: Leaves) -> Array:
    if binding.kind in ("memory", "place", "grad", "host", "size", "number"):
        return reader(binding)(leaves)
    found = tensor_of(binding, leaves)
    return found._data if isinstance(found, Tensor) else found


def reader(binding: Binding) -> Callable[[Any], Array]:
    """A function that reads the array of an input other than arguments and state."""
    if binding.kind == "size":
        holder, axis = binding.ref
        if holder.kind == "number":
            return reader(holder)
        return lambda leaves: np.array(_array(tensor_of(holder, leaves)).shape[axis])
    if binding.kind == "number":
        return lambda leaves: np.array(leaves[binding.ref])
    if binding.kind == "memory":
        return binding.ref.read  # type: ignore[no-any-return]
    if binding.kind != "host":
        return lambda leaves: _array(tensor_of(binding, leaves))
    owner, key = binding.ref
    if isinstance(owner, Mapping):
        return lambda leaves: np.array(float(owner[key]))
    return lambda leaves: np.array(float(getattr(owner, key)))


def _array(value: object) -> Array:
    return value._data if isinstance(value, Tensor) else np.asarray(value)


def tensor_of(binding: Binding, leaves: Leaves) -> Any:
    """The tensor (or array, or number) behind an input."""
    if binding.kind == "argument":
        return leaves[binding.ref]
    if binding.kind == "memory":
        return binding.ref.read(leaves)
    if binding.kind == "place":
        place, n = binding.ref
        return place.leaves()[n]
    return tensor_of(binding.ref, leaves)._grad if binding.kind == "grad" else binding.ref
