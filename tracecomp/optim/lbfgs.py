"""Limited-memory BFGS with a closure, optionally with a line search for the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.base.errors import user_source
from tracecomp.eager.modes import enable_grad, modes, no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.optim.optimizer import Closure, Optimizer, ParamsT, Scalar, State, check_lr
from tracecomp.optim.options import Group

Objective = Callable[[float], tuple[float, Tensor]]


def _cubic_minimum(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None
) -> float:
    """Minimiser, within bounds, of the cubic through two points with slopes (Nocedal and Wright, eq. 3.59)."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    if x1 <= x2:
        place = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        place = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return float(min(max(place, low), high))


class _Point:
    """A trial step length: value, gradient, slope along the direction."""

    __slots__ = ("gradient", "slope", "t", "value")

    def __init__(self, t: float, value: float, gradient: Tensor, slope: float) -> None:
        self.t, self.value, self.gradient, self.slope = t, value, gradient, slope


def strong_wolfe(
    objective: Objective, t: float, direction: Tensor, value: float, gradient: Tensor, slope: float,
    c1: float = 1e-4, c2: float = 0.9, tolerance: float = 1e-9, most: int = 25,
) -> tuple[_Point, int]:  # fmt: skip
    """A step length that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    The search ends after ``most`` calls of ``objective`` in addition to the first, with the best step so far.
    """
    size = float(direction.abs().max().item())

    def at(t: float) -> _Point:
        f, g = objective(t)
        return _Point(t, f, g, float(g.dot(direction).item()))

    start = before = _Point(0.0, value, gradient, slope)
    now = at(t)
    calls, tries = 1, 0
    bracket: list[_Point] = []
    done = False
    while tries < most:
        if now.value > value + c1 * now.t * slope or (tries > 1 and now.value >= before.value):
            bracket = [before, now]
            break
        if abs(now.slope) <= -c2 * slope:
            bracket, done = [now], True
            break
        if now.slope >= 0:
            bracket = [before, now]
            break
        low, high = now.t + 0.01 * (now.t - before.t), now.t * 10
        t = _cubic_minimum(before.t, before.value, before.slope, now.t, now.value, now.slope, (low, high))
        before, now = now, at(t)
        calls += 1
        tries += 1
    if tries == most:
        bracket = [start, now]
    if done or len(bracket) == 1:
        return bracket[0], calls
    return _zoom(at, bracket, calls, tries, value, slope, size, (c1, c2, tolerance, most))


def _zoom(
    at: Callable[[float], _Point], bracket: list[_Point], calls: int, tries: int, value: float, slope: float,
    size: float, limits: tuple[float, float, float, int],
) -> tuple[_Point, int]:  # fmt: skip
    c1, c2, tolerance, most = limits
    stalled = False
    low, high = (0, 1) if bracket[0].value <= bracket[-1].value else (1, 0)
    while tries < most:
        a, b = bracket
        if abs(b.t - a.t) * size < tolerance:
            break
        t = _cubic_minimum(a.t, a.value, a.slope, b.t, b.value, b.slope)
        left, right = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stalled or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        new = at(t)
        calls += 1
        tries += 1
        if new.value > value + c1 * t * slope or new.value >= bracket[low].value:
            bracket[high] = new
            low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
            continue
        if abs(new.slope) <= -c2 * slope:
            bracket[low] = new
            break
        if new.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    return bracket[low], calls


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last gradients (Nocedal 1980). ``step`` needs a closure; one parameter group."""

    elementwise = False

    def __init__(
        self, params: ParamsT, lr: Scalar = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        parts = [T.zeros(p.numel(), dtype=p.dtype) if p.grad is None else p.grad.reshape(-1) for p in self._params]
        return T.cat(parts)

    def _add(self, t: float, direction: Tensor) -> None:
        start = 0
        for p in self._params:
            p.copy_(p + direction[start : start + p.numel()].reshape(*p.shape) * t)
            start += p.numel()

    def _direction(self, state: State, gradient: Tensor) -> Tensor:
        """Two-loop recursion over the kept pairs."""
        olds, steps, ratios = state["old_dirs"], state["old_stps"], state["ro"]
        q = -gradient
        alphas: list[Any] = [None] * len(olds)
        for i in reversed(range(len(olds))):
            alphas[i] = steps[i].dot(q) * ratios[i]
            q = q - olds[i] * alphas[i]
        r: Tensor = q * state["H_diag"]
        for i in range(len(olds)):
            r = r + steps[i] * (alphas[i] - olds[i].dot(r) * ratios[i])
        return r

    def _remember(self, state: State, gradient: Tensor, history: int) -> None:
        y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = y.dot(s)
        if float(curvature.item()) <= 1e-10:
            return
        for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / curvature)):
            if len(state[name]) == history:
                state[name].pop(0)
            state[name].append(value)
        state["H_diag"] = curvature / y.dot(y)

    def step(self, closure: Closure | None = None) -> Any:
        """Up to ``max_iter`` quasi-Newton steps; ``closure`` clears gradients, computes the loss and calls backward."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        if modes.recorder is not None:
            modes.recorder.refuse(
                f"LBFGS.step at {user_source()} depends on values at every turn: how often it calls the closure, how "
                "far it moves. Compile the closure, and make the step outside."
            )
        with no_grad():
            return self._minimize(closure)

    def _evaluate(self, closure: Closure) -> Any:
        with enable_grad():
            return closure()

    def _minimize(self, closure: Closure) -> Any:
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = self._evaluate(closure)
        loss = float(first)
        calls = 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if float(gradient.abs().max().item()) <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._choose_direction(state, gradient, group)
            state["prev_flat_grad"], state["prev_loss"] = gradient, loss
            slope = float(gradient.dot(state["d"]).item())
            if slope > -group["tolerance_change"]:
                break
            before = loss
            left = group["max_eval"] - calls
            loss, gradient, used = self._advance(closure, state, loss, gradient, slope, iteration, left)
            calls += used
            state["func_evals"] += used
            if iteration == group["max_iter"] or calls >= group["max_eval"]:
                break
            if float(gradient.abs().max().item()) <= group["tolerance_grad"]:
                break
            moved = float((state["d"] * state["t"]).abs().max().item())
            if moved <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _choose_direction(self, state: State, gradient: Tensor, group: Group) -> None:
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1, d=-gradient)
            state["t"] = min(1.0, 1.0 / float(gradient.abs().sum().item())) * group["lr"]
            return
        self._remember(state, gradient, group["history_size"])
        state["d"] = self._direction(state, gradient)
        state["t"] = group["lr"]

    def _advance(
        self, closure: Closure, state: State, loss: float, gradient: Tensor, slope: float,
        iteration: int, left: int,
    ) -> tuple[float, Tensor, int]:  # fmt: skip
        """Move along the direction: value, gradient and number of calls of the closure; a search may make ``left``
        calls."""
        group = self.param_groups[0]
        if group["line_search_fn"] is None:
            self._add(state["t"], state["d"])
            if iteration == group["max_iter"]:
                return loss, gradient, 0
            return float(self._evaluate(closure)), self._gradient(), 1
        origin = [p.clone() for p in self._params]

        def objective(t: float) -> tuple[float, Tensor]:
            self._add(t, state["d"])
            value, g = float(self._evaluate(closure)), self._gradient()
            for p, x in zip(self._params, origin, strict=True):
                p.copy_(x)
            return value, g

        point, used = strong_wolfe(objective, state["t"], state["d"], loss, gradient, slope, most=left)
        state["t"] = point.t
        self._add(point.t, state["d"])
        return point.value, point.gradient, used
