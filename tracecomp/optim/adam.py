"""Adam and its relatives. Bias corrections are float64 tensors made from the step counter, as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.eager.modes import unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float64
from tracecomp.optim.optimizer import (
    Optimizer,
    Options,
    ParamsT,
    Scalar,
    State,
    check_betas,
    non_negative,
    step_counter,
    update_lists,
)
from tracecomp.optim.options import Group, active, number, pair


def _first_state(param: Tensor, state: State, *names: str) -> Tensor:
    """Return the step counter as float64, one further; zeros under ``names`` at the first step."""
    if not state:
        with unrecorded():
            state["step"] = step_counter()
            for name in names:
                state[name] = T.zeros_like(param)
    state["step"].add_(1)
    return state["step"].to(float64)  # type: ignore[no-any-return]


def _decay(group: Group) -> Any:
    return number(group, "weight_decay") if active(group, "weight_decay") else None


def _move(moment: Tensor, grad: Tensor, beta: Scalar) -> None:
    """Move ``moment`` towards ``grad`` by ``1 - beta``."""
    moment.copy_(moment + (grad - moment) * (1 - beta))


def _decayed(param: Tensor, grad: Tensor, lr: Scalar, decay: Scalar | None, decoupled: bool) -> tuple[Tensor, Tensor]:
    """Return the start of the step and its gradient; weight decay is in one of them, depending on ``decoupled``."""
    if decay is None:
        return param, grad
    return (param * (1 - lr * decay), grad) if decoupled else (param, grad + param * decay)


def _moments(state: State, grad: Tensor, beta1: Scalar, beta2: Scalar) -> tuple[Tensor, Tensor]:
    """Advance the running means of the gradient and of its square by one step."""
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    _move(mean, grad, beta1)
    square.copy_(square * beta2 + grad * (1 - beta2) * grad)
    return mean, square


class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba 2014), AMSGrad (Reddi et al. 2018) optional."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, betas: tuple[Scalar, Scalar] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        non_negative(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return (
            number(group, "lr"), pair(group, "betas"), number(group, "eps"), _decay(group), active(group, "amsgrad"),
            active(group, "decoupled_weight_decay"),
        )  # fmt: skip

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, (beta1, beta2), eps, decay, amsgrad, decoupled = options
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if amsgrad else ("exp_avg", "exp_avg_sq")
        step = _first_state(param, state, *names)
        start, grad = _decayed(param, grad, lr, decay, decoupled)
        mean, square = _moments(state, grad, beta1, beta2)
        if amsgrad:
            state["max_exp_avg_sq"].copy_(T.maximum(state["max_exp_avg_sq"], square))
            square = state["max_exp_avg_sq"]
        size = lr / (1 - beta1**step)
        correction = (1 - beta2**step).sqrt()  # on both sides of the fraction: one division per element
        param.copy_(start + mean * (-size * correction) / (square.sqrt() + eps * correction))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, betas: tuple[Scalar, Scalar] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class Adamax(Optimizer):
    """Adam by the infinity norm (Kingma and Ba 2014)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        non_negative(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), pair(group, "betas"), number(group, "eps"), _decay(group)

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, (beta1, beta2), eps, decay = options
        step = _first_state(param, state, "exp_avg", "exp_inf")
        if decay is not None:
            grad = grad + param * decay
        mean, norm = state["exp_avg"], state["exp_inf"]
        _move(mean, grad, beta1)
        norm.copy_(T.maximum(norm * beta2, grad.abs() + eps))
        param.copy_(param + mean * -(lr / (1 - beta1**step)) / norm)


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        non_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return (
            number(group, "lr"), pair(group, "betas"), number(group, "eps"), _decay(group),
            number(group, "momentum_decay"), active(group, "decoupled_weight_decay"),
        )  # fmt: skip

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, (beta1, beta2), eps, decay, momentum_decay, decoupled = options
        if not state:
            with unrecorded():
                state["step"] = step_counter()
                state["mu_product"] = T.ones((), dtype=state["step"].dtype)
                state["exp_avg"], state["exp_avg_sq"] = T.zeros_like(param), T.zeros_like(param)
        step = _first_state(param, state)
        start, grad = _decayed(param, grad, lr, decay, decoupled)
        mu = (1.0 - T.pow(0.96, step * momentum_decay) * 0.5) * beta1
        mu_next = (1.0 - T.pow(0.96, (step + 1) * momentum_decay) * 0.5) * beta1
        state["mu_product"].copy_(state["mu_product"] * mu)
        product = state["mu_product"].to(float64)
        mean, square = _moments(state, grad, beta1, beta2)
        denominator = (square / (1 - beta2**step)).sqrt() + eps
        moved = start + grad * (-lr * (1.0 - mu) / (1.0 - product)) / denominator
        param.copy_(moved + mean * (-lr * mu_next / (1.0 - product * mu_next)) / denominator)


class RAdam(Optimizer):
    """Adam with rectified variance (Liu et al. 2019)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        non_negative(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return (
            number(group, "lr"), pair(group, "betas"), number(group, "eps"), _decay(group),
            active(group, "decoupled_weight_decay"),
        )  # fmt: skip

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, (beta1, beta2), eps, decay, decoupled = options
        step = _first_state(param, state, "exp_avg", "exp_avg_sq")
        start, grad = _decayed(param, grad, lr, decay, decoupled)
        mean, square = _moments(state, grad, beta1, beta2)
        corrected = mean / (1 - beta1**step)
        power = beta2**step
        limit = 2 / (1 - beta2) - 1
        length = limit - step * 2 * power / (1 - power)
        # The square root is valid only for length > 5, where it is used.
        used = T.where(length > 5.0, length, 6.0)
        ratio = (used - 4) * (used - 2) * limit / ((limit - 4) * (limit - 2) * used)
        rectified = ratio.sqrt() * ((1 - power).sqrt() / (square.sqrt() + eps))
        factor = T.where(length > 5.0, rectified, T.ones_like(param))
        param.copy_(start + corrected * lr * factor * -1.0)


def adam(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor], state_steps: Sequence[Tensor], foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False,
    decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: Scalar, beta2: Scalar, lr: Scalar,
    weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """Update ``params`` and their state by one step of Adam, in place; the lists have one entry per parameter.

    ``max_exp_avg_sqs`` is read only for ``amsgrad``. RuntimeError for steps that are not tensors, and for a scale.
    """
    if not all(isinstance(step, Tensor) for step in state_steps):
        raise RuntimeError("API has changed, `state_steps` argument must contain a list of singleton tensors")
    states: list[State] = [
        {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        for step, mean, square in zip(state_steps, exp_avgs, exp_avg_sqs, strict=True)
    ]
    if amsgrad:
        for state, largest in zip(states, max_exp_avg_sqs, strict=True):
            state["max_exp_avg_sq"] = largest
    decay = weight_decay if weight_decay else None
    options = lr, (beta1, beta2), eps, decay, amsgrad, decoupled_weight_decay
    update_lists(Adam, params, grads, states, options, maximize, grad_scale is None and found_inf is None)


def adamw(
    params: Sequence[Tensor], grads: Sequence[Tensor], exp_avgs: Sequence[Tensor], exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor], state_steps: Sequence[Tensor], foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False, *, amsgrad: bool,
    beta1: Scalar, beta2: Scalar, lr: Scalar, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """Update ``params`` as ``adam`` does, with decoupled weight decay."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable, differentiable, fused,
        grad_scale, found_inf, has_complex, True, amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr,
        weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
