"""Scatter and gather for a single device: the CPU, which may be named any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.module import Module


def scatter(inputs: object, target_gpus: Sequence[object], dim: int = 0) -> Any:
    """Split ``inputs`` into one part per target: tensors in chunks along ``dim``, other values copied."""
    count = len(target_gpus)
    if isinstance(inputs, Tensor):
        return inputs.chunk(count, dim)
    if isinstance(inputs, tuple) and inputs:
        parts = zip(*(scatter(x, target_gpus, dim) for x in inputs), strict=False)
        return [type(inputs)(*p) if hasattr(inputs, "_fields") else tuple(p) for p in parts]
    if isinstance(inputs, list) and inputs:
        return [list(p) for p in zip(*(scatter(x, target_gpus, dim) for x in inputs), strict=False)]
    if isinstance(inputs, dict) and inputs:
        rows = zip(*(scatter(x, target_gpus, dim) for x in inputs.values()), strict=False)
        return [type(inputs)(zip(inputs, row, strict=True)) for row in rows]
    return [inputs for _ in range(count)]


def scatter_kwargs(inputs: object, kwargs: object, target_gpus: Sequence[object], dim: int = 0) -> tuple[Any, Any]:
    """Positional and keyword arguments for each target."""
    by_place = scatter(inputs, target_gpus, dim) if inputs else []
    by_name = scatter(kwargs, target_gpus, dim) if kwargs else []
    size = max(len(by_place), len(by_name))
    by_place = [*by_place, *[() for _ in range(size - len(by_place))]]
    return tuple(by_place), (*by_name, *({} for _ in range(size - len(by_name))))


def gather(outputs: Sequence[Any], target_device: object, dim: int = 0) -> Any:
    """Results of all targets joined along ``dim``."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return T.cat([x.reshape(1) if x.ndim == 0 else x for x in outputs], dim)
    if isinstance(first, dict):
        return type(first)((k, gather([x[k] for x in outputs], target_device, dim)) for k in first)
    if isinstance(first, tuple | list):
        return type(first)(gather(list(parts), target_device, dim) for parts in zip(*outputs, strict=True))
    return None


def replicate(network: Module, devices: Sequence[object], detach: bool = False) -> list[Module]:
    """``network`` once for each device; they share parameters."""
    return [copy(network) for _ in devices]


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Any = None, devices: object = None
) -> list[Any]:  # fmt: skip
    """Call each module with its inputs, one after the other."""
    named = kwargs_tup or [{}] * len(modules)
    given = zip(modules, inputs, named, strict=True)
    return [m(*(args if isinstance(args, tuple | list) else (args,)), **kwargs) for m, args, kwargs in given]
