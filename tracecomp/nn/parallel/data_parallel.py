"""``DataParallel`` for a single device: the wrapped module and the ``module.`` prefix of its names."""

from __future__ import annotations

from typing import Any

from tracecomp.nn.module import Module


class DataParallel(Module):
    """Calls ``module``; its parameters are named ``module.<name>``, as in checkpoints of several devices."""

    def __init__(self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: object, device_ids: object = None, output_device: object = None, dim: int = 0,
    module_kwargs: dict[str, object] | None = None,
) -> Any:  # fmt: skip
    """``module(*inputs, **module_kwargs)``, on the single device."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
