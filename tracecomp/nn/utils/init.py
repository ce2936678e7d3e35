"""Construction of modules without initialising their weights."""

from __future__ import annotations

import inspect
from typing import Any

from tracecomp.nn.module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Construct a module of ``module_cls`` whose parameters and buffers are uninitialised.

    RuntimeError unless ``module_cls`` is a module class that takes a ``device``.

    Example:
        >>> from tracecomp import nn
        >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
        torch.Size([3, 2])
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=final)
