"""einops on tracecomp tensors: its backend, registered when einops is imported, and ``einops.layers.tracecomp``.

einops asks the subclasses of its ``AbstractBackend`` whose framework is loaded. So that einops is never loaded by
us, a finder on ``sys.meta_path`` waits for the import of ``einops._backends`` and adds the subclass then.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64

_BACKENDS = "einops._backends"
_LAYERS = "einops.layers.tracecomp"


class Backend:
    """The framework interface of einops, with torch's names: a subclass of its ``AbstractBackend`` once that is
    imported."""

    framework_name = "tracecomp"

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        result: Tensor = T.from_numpy(x)
        return result.requires_grad_() if self.is_float_type(result) else result

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return T.arange(start, stop, dtype=int64)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return T.reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return T.permute(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        if operation in ("min", "max"):
            return T.amin(x, tuple(axes)) if operation == "min" else T.amax(x, tuple(axes))
        if operation in ("sum", "mean"):
            return T.sum(x, tuple(axes)) if operation == "sum" else T.mean(x, tuple(axes))
        if operation not in ("any", "all", "prod"):
            raise NotImplementedError(f"Unknown reduction {operation}")
        for axis in sorted(axes, reverse=True):
            x = getattr(T, operation)(x, axis)
        return x

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return T.stack(tensors)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        sizes = [-1] * n_axes
        for position, length in pos2len.items():
            x = self.add_axis(x, position)
            sizes[position] = length
        return T.broadcast_to(x, [x.shape[i] if n == -1 else n for i, n in enumerate(sizes)])

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return T.unsqueeze(x, new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return T.tile(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return T.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.is_floating_point

    def layers(self) -> ModuleType:
        return importlib.import_module(_LAYERS)

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return T.einsum(pattern, *x)


class _Finder:
    """Adds the backend when einops loads its own, and finds the module of layers."""

    backend: type | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == _LAYERS:
            layers: Any = _LayersLoader()
            return importlib.machinery.ModuleSpec(name, layers)
        if name != _BACKENDS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader, self)
            spec.loader = loader
        return spec

    def add(self, module: Any) -> None:
        # einops holds subclasses weakly.
        self.backend = type("TracecompBackend", (Backend, module.AbstractBackend), {})


class _Loader:
    """The loader einops' module has anyway, followed by adding the backend."""

    def __init__(self, inner: importlib.abc.Loader, finder: _Finder) -> None:
        self.inner = inner
        self.finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.finder.add(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _LayersLoader:
    """Makes the module of layers."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(importlib.import_module("tracecomp.interop.einops_layers").layers())


FINDER = _Finder()
sys.meta_path.insert(0, FINDER)
if _BACKENDS in sys.modules:
    FINDER.add(sys.modules[_BACKENDS])
