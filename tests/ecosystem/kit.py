"""Inputs of the programs: weights and data that do not depend on a library's random numbers, and the way to call."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np


class Kit:
    """``call`` calls a function, or compiles it and calls it three times; ``results`` are compared between torches."""

    def __init__(self, torch: Any, compiled: bool) -> None:
        self.torch, self.compiled = torch, compiled
        self.results: dict[str, Any] = {}
        self.graphs: list[int] = []

    def _random(self, name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    def fill(self, module: Any) -> Any:
        """``module`` with weights that its parameters' names and shapes decide."""
        with self.torch.no_grad():
            for name, p in module.named_parameters():
                values = self._random(name).normal(size=tuple(p.shape)) * (0.5 / max(p.shape[-1:] or [1]) ** 0.5)
                p.copy_(self.torch.tensor(values + (1.0 if name.endswith("norm.weight") else 0.0)).to(p.dtype))
        return module

    def normal(self, *shape: int, name: str = "x") -> Any:
        return self.torch.tensor(self._random(name).normal(size=shape).astype("float32"))

    def ints(self, high: int, *shape: int, name: str = "i") -> Any:
        return self.torch.tensor(self._random(name).integers(0, high, size=shape))

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``fn(*args, **kwargs)``; compiled, the result of the third call."""
        if not self.compiled:
            return fn(*args, **kwargs)
        fast = self.torch.compile(fn)
        for _ in range(3):
            result = fast(*args, **kwargs)
        self.graphs.append(len(getattr(fast, "graphs", ())))
        return result

    def keep(self, **values: Any) -> None:
        """Results to compare."""
        for name, value in values.items():
            array = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
            self.results[name] = np.asarray(array, dtype=np.float64)

    def forward_backward(
        self, module: Any, *args: Any, pick: Callable[[Any], Any] | None = None, **kwargs: Any
    ) -> None:
        """Keep what ``module`` computes and the gradients of its square."""
        choose = pick or (lambda y: y)
        y = choose(self.call(module, *args, **kwargs))
        module.zero_grad()
        (y.float() ** 2).mean().backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        self.keep(output=y, gradients=sum(float((g.double() ** 2).sum()) for g in grads) ** 0.5)
