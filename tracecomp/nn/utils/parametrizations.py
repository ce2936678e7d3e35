"""Ready-made parametrisations: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.factors import geqrf, householder_product, qr
from tracecomp.functional.linalg.linalg import matrix_exp
from tracecomp.functional.linalg.solving import solve
from tracecomp.nn import functional as F
from tracecomp.nn.module import Module
from tracecomp.nn.utils.parametrize import register_parametrization
from tracecomp.nn.utils.weight_norm import norm_except


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            rows, columns = self._matrix(weight).shape
            self.register_buffer("_u", F.normalize(T.randn(rows, dtype=weight.dtype), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(T.randn(columns, dtype=weight.dtype), dim=0, eps=eps))
            self._iterate(self._matrix(weight.detach()), 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / self._u.clone().dot(matrix.mv(self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


class _Orthogonal(Module):
    """Matrices with orthonormal rows or columns: a map from lower triangles, times a base if ``use_trivialization``."""

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def _columns(self, x: Tensor) -> Tensor:
        """Orthonormal columns from (n, k), n at least k."""
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            below = x.tril(-1)
            q = householder_product(below, 2.0 / ((below * below).sum(-2) + 1.0))
            return q * x.diagonal(dim1=-2, dim2=-1).sign().detach().unsqueeze(-2)
        lower = x.tril()
        if n != k:
            lower = T.cat([lower, x.new_zeros((*x.shape[:-2], n, n - k))], -1)
        skew = lower - lower.transpose(-2, -1)
        if self.orthogonal_map == "matrix_exp":
            full: Tensor = matrix_exp(skew)
        else:
            eye = T.eye(n, dtype=x.dtype)
            full = solve(eye - skew * 0.5, eye + skew * 0.5)
        return full[..., :k]

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        q = self._columns(X.transpose(-2, -1) if wide else X)
        if "base" in self._buffers:
            q = self.base @ q
        return q.transpose(-2, -1) if wide else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got {Q.shape}.")
        wide = Q.shape[-2] < Q.shape[-1]
        q = Q.transpose(-2, -1) if wide else Q
        if "base" in self._buffers:
            full, r = qr(q, "complete")
            k = q.shape[-1]
            signs = r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
            self.base = T.cat([full[..., :k] * signs, full[..., k:]], -1)
            return T.zeros_like(Q) - T.eye(*Q.shape[-2:], dtype=Q.dtype)
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        a, tau = geqrf(q)
        signs = a.diagonal(dim1=-2, dim2=-1).sign()
        signs = T.where(tau == 0, -signs, signs)
        a = a.tril(-1) + T.eye(*a.shape[-2:], dtype=a.dtype) * signs.unsqueeze(-2)
        return a.transpose(-2, -1) if wide else a


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a matrix orthogonal (Lezcano-Casado 2019): ``matrix_exp``, ``cayley`` or ``householder``.

    ValueError for anything but a matrix or a batch of them.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    return register_parametrization(module, name, _Orthogonal(weight, chosen, use_trivialization), unsafe=True)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Length and direction of a weight as separate parameters (Salimans and Kingma 2016).

    It also loads checkpoints of ``nn.utils.weight_norm``.
    """

    def older_names(state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for number, letter in enumerate("gv"):
            older = f"{prefix}{name}_{letter}"
            if older in state:
                state[f"{prefix}parametrizations.{name}.original{number}"] = state.pop(older)

    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(older_names)
    return module


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """A weight over its largest singular value (Miyato et al. 2018). ValueError when there is no such weight."""
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
