"""A workload: a piece of work, written once for torch and tracecomp and once more for jax."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]
Mode = Literal["function", "inference", "training"]


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    ``torch(lib)`` makes a function of tensors from a namespace with torch's names. For inference and training it makes
    a module that classifies, trained on inputs and targets. ``jax(xp)`` makes the same function of arrays; for models,
    a function of a ``jax_nets.Scope`` and an array. ``flops`` and ``bytes`` count the unavoidable work; 0 if the
    workload has no such figure. ``smallest`` is the smallest dimension of a product of matrices.
    """

    kind: str
    name: str
    inputs: Callable[[np.random.Generator], tuple[Array, ...]]
    torch: Callable[[Any], Any]
    jax: Callable[[Any], Callable[..., Any]] | None = None
    mode: Mode = "function"
    optimizer: Literal["", "sgd", "adamw"] = ""
    flops: float = 0
    bytes: float = 0
    smallest: int = 0
    tolerance: float = 1e-4
    x64: bool = False
    export: bool = True
    channels_last: bool = False

    @property
    def id(self) -> str:
        """Name among all workloads."""
        return f"{self.kind}/{self.name}"

    def arrays(self) -> tuple[Array, ...]:
        """The inputs: the same in every process."""
        return self.inputs(np.random.default_rng(zlib.crc32(self.id.encode())))


def initial(name: str, shape: tuple[int, ...]) -> Array:
    """The first value of parameter ``name``: the same in every engine; keeps activations near one."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
    if len(shape) > 1:
        return noise / np.float32(np.prod(shape[1:])) ** np.float32(0.5)
    return noise * np.float32(0.1) + np.float32(name.endswith("weight"))


def fill(lib: Any, model: Any) -> Any:
    """Give every parameter of ``model`` its first value."""
    with lib.no_grad():
        for name, p in model.named_parameters():
            p.copy_(lib.from_numpy(np.asarray(initial(name, tuple(p.shape)))))
    return model


def optimizer(lib: Any, name: str, parameters: Any, fused: bool) -> Any:
    """The optimizer of a training step; ``fused`` asks for torch's own fused kernels."""
    make = {"sgd": lib.optim.SGD, "adamw": lib.optim.AdamW}[name]
    return make(parameters, lr=LEARNING_RATE, **({"fused": True} if fused else {}))


LEARNING_RATE = 1e-3


def normal(*shape: int, dtype: Any = np.float32) -> Callable[[np.random.Generator], Array]:
    """An input of normal numbers."""
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def integers(high: int, *shape: int) -> Callable[[np.random.Generator], Array]:
    """An input of indices below ``high``."""
    return lambda rng: rng.integers(0, high, shape, dtype=np.int64)


def inputs(*each: Callable[[np.random.Generator], Array]) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    """Several inputs."""
    return lambda rng: tuple(make(rng) for make in each)
