"""Optimizers with a learning rate per element from accumulated squares."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.modes import unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float32, float64
from tracecomp.optim.optimizer import Optimizer, Options, ParamsT, Scalar, State, check_lr, non_negative, step_counter
from tracecomp.optim.options import Group, active, number


def _decayed(param: Tensor, grad: Tensor, decay: Scalar) -> Tensor:
    return grad if decay is None else grad + param * decay


def _decay(group: Group) -> Any:
    return number(group, "weight_decay") if active(group, "weight_decay") else None


class Adagrad(Optimizer):
    """Accumulated squares (Duchi et al. 2011)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, lr_decay=lr_decay, weight_decay=weight_decay)
        non_negative(initial_accumulator_value=initial_accumulator_value, epsilon=eps)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"step": step_counter(), "sum": T.full_like(param, initial_accumulator_value)}

    def share_memory(self) -> None:
        """Put the state into shared memory."""
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["sum"].share_memory_()

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), number(group, "lr_decay"), number(group, "eps"), _decay(group)

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, lr_decay, eps, decay = options
        state["step"].add_(1)
        grad = _decayed(param, grad, decay)
        rate = lr / (1 + (state["step"].to(float64) - 1) * lr_decay)
        state["sum"].copy_(state["sum"] + grad * grad)
        param.copy_(param + grad * -rate / (state["sum"].sqrt() + eps))


class Adadelta(Optimizer):
    """Steps in the units of the parameters (Zeiler 2012)."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        non_negative(epsilon=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), number(group, "rho"), number(group, "eps"), _decay(group)

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, rho, eps, decay = options
        if not state:
            with unrecorded():
                state["step"] = step_counter()
                state["square_avg"], state["acc_delta"] = T.zeros_like(param), T.zeros_like(param)
        state["step"].add_(1)
        grad = _decayed(param, grad, decay)
        square, moved = state["square_avg"], state["acc_delta"]
        square.copy_(square * rho + grad * (1 - rho) * grad)
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * grad
        moved.copy_(moved * rho + delta * (1 - rho) * delta)
        param.copy_(param + delta * -lr)


class RMSprop(Optimizer):
    """Divides by a moving root mean square (Hinton 2012), optionally centred, with momentum."""

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        momentum = number(group, "momentum") if active(group, "momentum") else None
        return (
            number(group, "lr"), number(group, "alpha"), number(group, "eps"), _decay(group), momentum,
            active(group, "centered"),
        )  # fmt: skip

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, alpha, eps, decay, momentum, centered = options
        if not state:
            with unrecorded():
                state["step"] = step_counter()
                state["square_avg"] = T.zeros_like(param)
                if momentum is not None:
                    state["momentum_buffer"] = T.zeros_like(param)
                if centered:
                    state["grad_avg"] = T.zeros_like(param)
        state["step"].add_(1)
        grad = _decayed(param, grad, decay)
        square = state["square_avg"]
        square.copy_(square * alpha + grad * (1 - alpha) * grad)
        spread = square
        if centered:
            mean = state["grad_avg"]
            mean.copy_(mean.lerp(grad, 1 - alpha))
            spread = square - mean * mean
        step = grad / (spread.sqrt() + eps)
        if momentum is None:
            param.copy_(param + grad * -lr / (spread.sqrt() + eps))
        else:
            state["momentum_buffer"].copy_(state["momentum_buffer"] * momentum + step)
            param.copy_(param + state["momentum_buffer"] * -lr)


class Adafactor(Optimizer):
    """Squares kept as row and column sums (Shazeer and Stern 2018)."""

    elementwise = False
    takes_complex = False

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        })  # fmt: skip

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), number(group, "beta2_decay"), group["eps"], number(group, "d"), _decay(group)

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        lr, beta2_decay, (eps1, eps2), clip, decay = options
        eps1 = T.finfo(param.dtype).eps if eps1 is None else eps1
        if not state:
            with unrecorded():
                state["step"] = T.tensor(0.0, dtype=float32)
                if grad.ndim > 1:
                    state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                    state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
                else:
                    state["variance"] = T.zeros_like(grad)
        state["step"].add_(1)
        step = state["step"].to(float64)
        weight = step**beta2_decay
        rate = T.minimum(step**-0.5, T.zeros((), dtype=float64) + lr)
        root_size = param.numel() ** 0.5
        size = (param.norm(2) / root_size).to(float64).clamp_min(eps2) * rate
        start = param if decay is None else param * (1 - lr * decay)
        if grad.ndim > 1:
            row, column = state["row_var"], state["col_var"]
            row.copy_(row.lerp((grad * grad).mean(-1, keepdim=True), weight.to(row.dtype)))
            column.copy_(column.lerp((grad * grad).mean(-2, keepdim=True), weight.to(row.dtype)))
            variance = row @ column / row.mean(-2, keepdim=True).clamp_min(eps1)
        else:
            state["variance"].copy_(state["variance"].lerp(grad * grad, weight.to(grad.dtype)))
            variance = state["variance"]
        update = grad * variance.clamp_min(eps1 * eps1).rsqrt()
        excess = (update.norm(2).to(float64) / (clip * root_size)).clamp_min(1.0)
        param.copy_(start + update * (-size / excess))
