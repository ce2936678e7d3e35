"""Adam for gradients that are there for a few rows only."""

from __future__ import annotations

from typing import Any, cast

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.optim.optimizer import Optimizer, check_betas, non_negative
from tracecomp.optim.options import Group, number, pair


class SparseAdam(Optimizer):
    """Adam that moves, and whose averages decay, only where the gradient has entries (torch.optim.SparseAdam).

    Parameters are dense; ValueError for sparse ones, RuntimeError for dense gradients.
    """

    takes_sparse = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        non_negative(learning_rate=lr)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _group(self, group: Group) -> Any:
        return number(group, "lr"), pair(group, "betas"), number(group, "eps")

    def _update(self, param: Tensor, grad: Tensor, state: dict[str, Any], options: Any) -> None:
        lr, (beta1, beta2), eps = options
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = T.zeros_like(param), T.zeros_like(param)
        state["step"] += 1
        entries = cast("Any", grad).coalesce()
        index, values = entries.indices(), entries.values()
        at = tuple(index[d] for d in range(index.shape[0]))
        mean, square = state["exp_avg"][at], state["exp_avg_sq"][at]
        mean, square = mean + (values - mean) * (1 - beta1), square + (values * values - square) * (1 - beta2)
        state["exp_avg"][at], state["exp_avg_sq"][at] = mean, square
        size = lr * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        param[at] = param[at] - size * mean / (square.sqrt() + eps)
