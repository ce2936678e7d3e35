"""Momentum orthogonalised by Newton-Schulz iterations, for matrices (Jordan et al. 2024)."""

from __future__ import annotations

import math

from tracecomp.eager.modes import unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.norms import vector_norm
from tracecomp.optim.optimizer import Optimizer, Options, ParamsT, Scalar, State, check_lr, non_negative
from tracecomp.optim.options import Group, active, number

Coefficients = tuple[float, float, float]


def orthogonalize(grad: Tensor, coefficients: Coefficients, steps: int, eps: float) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly, by a quintic iteration. ValueError unless 2-d."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if grad.ndim != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    a, b, c = coefficients
    tall = grad.shape[0] > grad.shape[1]
    x = grad.t() if tall else grad
    x = x / vector_norm(x).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = x * a + (gram * b + gram @ gram * c) @ x
    result: Tensor = x.t() if tall else x
    return result


class Muon(Optimizer):
    """Momentum SGD whose update is orthogonalised; every parameter must be a matrix (ValueError otherwise)."""

    elementwise = False
    takes_complex = False

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Coefficients = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        non_negative(epsilon=eps)
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {param.shape}"
                    )

    def _group(self, group: Group) -> Options:
        return group, number(group, "lr"), number(group, "weight_decay"), number(group, "momentum")

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        group, lr, decay, momentum = options
        if "momentum_buffer" not in state:
            with unrecorded():
                state["momentum_buffer"] = T.zeros_like(grad)
        buffer = state["momentum_buffer"]
        buffer.copy_(buffer.lerp(grad, 1 - momentum))
        update = grad.lerp(buffer, momentum) if active(group, "nesterov") else buffer
        update = orthogonalize(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = param.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        else:
            ratio = math.sqrt(max(1, rows / columns))
        param.copy_(param * (1 - lr * decay) - update * (lr * ratio))
