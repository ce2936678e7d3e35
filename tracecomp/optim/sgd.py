"""Stochastic gradient descent, its averaged form, and Rprop."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.eager.device import strided
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
    non_negative,
    step_counter,
    update_lists,
)
from tracecomp.optim.options import Group, active, number, pair


class SGD(Optimizer):
    """Gradient descent with momentum (Sutskever et al. 2013), dampening and Nesterov's look-ahead."""

    takes_sparse = True

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Scalar = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return (
            number(group, "lr"),
            number(group, "weight_decay") if active(group, "weight_decay") else None,
            number(group, "momentum") if active(group, "momentum") else None,
            number(group, "dampening") if active(group, "dampening") else None,
            active(group, "nesterov"),
        )

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, decay, momentum, dampening, nesterov = options
        if momentum is not None and grad.layout is not strided:
            raise RuntimeError("SGD: momentum does not support sparse gradients")
        if decay is not None:
            grad = grad + param * decay
        if momentum is not None:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.copy_(buffer * momentum + (grad if dampening is None else grad * (1 - dampening)))
            grad = grad + buffer * momentum if nesterov else buffer
        param.copy_(param + grad * -lr)


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992); the average is ``state["ax"]``."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        decay = number(group, "weight_decay") if active(group, "weight_decay") else None
        return (*(number(group, k) for k in ("lr", "lambd", "alpha", "t0")), decay)

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, lambd, alpha, t0, decay = options
        if not state:
            with unrecorded():
                state["step"] = step_counter()
                state["eta"] = T.zeros_like(state["step"]) + lr
                state["mu"] = T.ones((), dtype=state["step"].dtype)
                state["ax"] = T.zeros_like(param)
        state["step"].add_(1)
        step, eta, mu, average = state["step"].to(float64), state["eta"], state["mu"], state["ax"]
        if decay is not None:
            grad = grad + param * decay
        param.copy_(param * (1 - lambd * eta.to(float64)) - grad * eta)
        average.copy_(T.where(mu == 1, param, average + (param - average) * mu))
        eta.copy_(lr / (1 + step * lambd * lr) ** alpha)
        mu.copy_(1 / (step - t0).clamp_min(1))


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993): steps from the signs of gradients."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), pair(group, "etas"), pair(group, "step_sizes")

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, (shrink, grow), (least, most) = options
        if not state:
            with unrecorded():
                state["step"] = step_counter()
                state["prev"] = T.zeros_like(param)
                state["step_size"] = T.zeros_like(grad) + lr
        state["step"].add_(1)
        agreement = grad * state["prev"]
        # Numbers in the gradient's type: ``where`` alone would use the default type.
        zeros = T.zeros_like(grad)
        factor = T.where(agreement > 0, zeros + grow, T.where(agreement < 0, zeros + shrink, zeros + 1))
        size = T.minimum(T.maximum(state["step_size"] * factor, zeros + least), zeros + most)
        grad = T.where(agreement < 0, 0.0, grad)
        param.copy_(param - grad.sign() * size)
        state["step_size"].copy_(size)
        state["prev"].copy_(grad)


def sgd(
    params: Sequence[Tensor], d_p_list: Sequence[Tensor], momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False, foreach: bool | None = None, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, *, weight_decay: float, momentum: float,
    lr: Scalar, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """Update ``params`` by one step of gradient descent, in place, along the gradients ``d_p_list``.

    Entries of ``momentum_buffer_list`` that are None become tensors. RuntimeError for a scale.
    """
    states: list[State] = [{} if buffer is None else {"momentum_buffer": buffer} for buffer in momentum_buffer_list]
    options = lr, weight_decay or None, momentum or None, dampening or None, nesterov
    update_lists(SGD, params, d_p_list, states, options, maximize, grad_scale is None and found_inf is None)
    if momentum:
        momentum_buffer_list[:] = [state["momentum_buffer"] for state in states]
