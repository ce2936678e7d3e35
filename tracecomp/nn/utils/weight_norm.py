"""Reparametrising a weight by hooks: direction and length, or division by the largest singular value."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.norms import vector_norm
from tracecomp.nn import functional as F
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter, is_lazy


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm over all axes but ``dim`` (over all when it is None or -1), dims kept."""
    if dim is None or dim == -1:
        return vector_norm(v)
    axes = [i for i in range(v.ndim) if i != dim % v.ndim]
    return vector_norm(v, 2, axes, keepdim=True)


class WeightNorm:
    """A forward pre-hook that computes ``weight = g * v / norm(v)`` (Salimans and Kingma 2016)."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight that ``g`` and ``v`` describe."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except(v, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _hook_of(module: Module, kind: type, name: str) -> Any:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:  # type: ignore[attr-defined]
            return key, hook
    return None


def _check_shape(weight: Tensor, what: str) -> None:
    if is_lazy(weight):
        raise ValueError(
            f"The module passed to `{what}` can't have uninitialized parameters. Make sure to run the dummy forward "
            f"before applying {what}"
        )


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a parameter by its length ``name_g`` and direction ``name_v``. RuntimeError if it already is."""
    if _hook_of(module, WeightNorm, name):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    _check_shape(weight, "WeightNorm")
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except(weight, hook.dim).data))
    module.register_parameter(name + "_v", Parameter(weight.data))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Restore the plain parameter. ValueError if the module has no weight norm of that name."""
    found = _hook_of(module, WeightNorm, name)
    if found is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    key, hook = found
    weight = hook.compute_weight(module)
    delattr(module, name)
    del module._parameters[name + "_g"], module._parameters[name + "_v"]
    setattr(module, name, Parameter(weight.data))
    del module._forward_pre_hooks[key]
    return module


class SpectralNorm:
    """A forward pre-hook that divides by the largest singular value, by power iteration (Miyato et al. 2018)."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        """``weight`` with axis ``dim`` as rows and the others as columns."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.ndim) if d != self.dim))
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module: Module, iterate: bool) -> Tensor:
        """The weight over its largest singular value; ``iterate`` improves the vectors first."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        if iterate:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module, iterate=module.training))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a parameter by its largest singular value at every forward."""
    if _hook_of(module, SpectralNorm, name):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    if name not in module._parameters:
        raise KeyError(f"spectral_norm(): {type(module).__name__} has no parameter {name!r}")
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    _check_shape(weight, "SpectralNorm")
    with no_grad():
        rows, columns = hook.matrix(weight).shape
        u = F.normalize(T.randn(rows, dtype=weight.dtype), dim=0, eps=eps)
        v = F.normalize(T.randn(columns, dtype=weight.dtype), dim=0, eps=eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Restore the plain parameter. ValueError if the module has no spectral norm of that name."""
    found = _hook_of(module, SpectralNorm, name)
    if found is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    key, hook = found
    with no_grad():
        weight = hook.compute_weight(module, iterate=False)
    delattr(module, name)
    for suffix in ("_u", "_v", "_orig"):
        delattr(module, name + suffix)
    module.register_parameter(name, Parameter(weight.detach()))
    del module._forward_pre_hooks[key]
    return module
