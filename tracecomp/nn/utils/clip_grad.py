"""Limiting gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.norms import vector_norm
from tracecomp.nn.sharding import ShardedTensor

Tensors = Tensor | Iterable[Tensor]


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensors) -> list[Tensor]:
    listed = _listed(parameters)
    for p in listed:
        if not isinstance(p, Tensor):
            raise AttributeError(f"expected parameters that have gradients, got {type_name(p)}")
    return [g for p in listed if (g := p.grad) is not None]


def _norm(t: Tensor, norm_type: float) -> Tensor:
    """The norm of one tensor; for a sharded one that of the whole, so that bits do not depend on the sharding."""
    return vector_norm(t.full_tensor() if isinstance(t, ShardedTensor) else t, norm_type)


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors as one vector. RuntimeError if it is not finite and ``error_if_nonfinite`` is set."""
    with no_grad():
        parts = _listed(tensors)
        if not parts:
            return T.tensor(0.0)
        total = vector_norm(T.stack([_norm(t, norm_type) for t in parts]), norm_type)
        if error_if_nonfinite and bool(total.isnan() | total.isinf()):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
                "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                "`error_if_nonfinite=False`"
            )
        return total


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients, in place, by ``max_norm / (total_norm + 1e-6)`` where that is less than 1."""
    max_norm = float(max_norm)
    with no_grad():
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in _grads(parameters):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale gradients, in place, so that their norm is at most ``max_norm``; returns the old norm."""
    parameters = _listed(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients, in place, to ``[-clip_value, clip_value]``."""
    limit = float(clip_value)
    with no_grad():
        for grad in _grads(parameters):
            grad.clamp_(-limit, limit)


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """The older name of ``clip_grad_norm_``."""
    warn_as_pytorch(
        "torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.",
        FutureWarning,
    )
    return clip_grad_norm_(*args, **kwargs)
