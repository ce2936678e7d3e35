"""Operators that make fewer elements, and running ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import bool_, int64
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, Value, ints, rule

Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _several(fn: Callable[..., Tensor]) -> Reduce:
    """A reduction that torch has for one dimension at a time."""

    def run(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        rest = [n for n in range(x.dim()) if n not in axes]
        found = x.permute([*rest, *axes]).reshape([*[x.shape[n] for n in rest], math.prod(x.shape[n] for n in axes)])
        result = fn(found, -1)
        return result.reshape([1 if n in axes else x.shape[n] for n in range(x.dim())]) if keep else result

    return run


def _typed(fn: Callable[..., Tensor]) -> Reduce:
    """A sum that has the type of its operand."""

    def run(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        return fn(x, axes, keep).to(x.dtype)

    return run


def _extreme(fn: Callable[..., Tensor], of_nothing: float) -> Reduce:
    def run(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        if all(x.shape[n] for n in axes):
            return fn(x if x.dtype.is_floating_point else x.to(int64), axes, keep).to(x.dtype)
        shape = [1 if n in axes else s for n, s in enumerate(x.shape) if keep or n not in axes]
        if x.dtype.is_floating_point:
            return T.full(shape, of_nothing, dtype=x.dtype)
        if x.dtype is bool_:
            return T.full(shape, of_nothing > 0)
        info = T.iinfo(x.dtype)
        return T.full(shape, info.min if of_nothing < 0 else info.max, dtype=x.dtype)

    return run


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": _typed(T.sum), "ReduceMean": lambda x, axes, keep: _mean(x, axes, keep),
    "ReduceMax": _extreme(T.amax, -math.inf), "ReduceMin": _extreme(T.amin, math.inf),
    "ReduceProd": _several(lambda x, d: T.prod(x, d).to(x.dtype)),
    "ReduceL1": _typed(lambda x, axes, keep: T.sum(T.abs(x), axes, keep)),
    "ReduceL2": _typed(lambda x, axes, keep: T.sqrt(T.sum(T.square(x), axes, keep).to(_floating(x)))),
    "ReduceLogSum": _typed(lambda x, axes, keep: T.log(T.sum(x, axes, keep))),
    "ReduceLogSumExp": _typed(lambda x, axes, keep: T.logsumexp(x, axes, keep)),
    "ReduceSumSquare": _typed(lambda x, axes, keep: T.sum(T.square(x), axes, keep)),
}  # fmt: skip


def _floating(x: Tensor) -> Any:
    return x.dtype if x.dtype.is_floating_point else T.zeros(1).double().dtype


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.dtype.is_floating_point:
        return T.mean(x, axes, keep)
    total = T.sum(x, axes, keep)
    return T.div(total, math.prod(x.shape[n] for n in axes), rounding_mode="trunc").to(x.dtype)


def _reduction(name: str) -> None:
    fn = _REDUCTIONS[name]

    @rule(name, static=(1,))
    def run(call: Call, x: Tensor, axes: Value = None) -> Tensor:
        axes = call.attr("axes", axes)
        found = [] if axes is None else [a % x.dim() for a in ints(axes)]
        if not found and call.attr("noop_with_empty_axes", 0):
            return _nothing(name, x)
        return fn(x, found or [*range(x.dim())], bool(call.attr("keepdims", 1))) if x.dim() else _nothing(name, x)


def _nothing(name: str, x: Tensor) -> Tensor:
    """A reduction over no dimension."""
    if name in ("ReduceL1", "ReduceL2"):
        return T.abs(x)
    if name == "ReduceSumSquare":
        return T.square(x)
    return T.log(x).to(x.dtype) if name == "ReduceLogSum" else x


for _name in _REDUCTIONS:
    _reduction(_name)


def _best(name: str, fn: Callable[..., Tensor]) -> None:
    @rule(name)
    def run(call: Call, x: Tensor) -> Tensor:
        axis: int = call.attr("axis", 0)
        keep = bool(call.attr("keepdims", 1))
        if not call.attr("select_last_index", 0):
            return fn(x, axis, keep).to(int64)
        last: int = x.shape[axis] - 1
        return last - fn(x.flip([axis]), axis, keep).to(int64)


_best("ArgMax", T.argmax)
_best("ArgMin", T.argmin)


def _running(name: str, fn: Callable[..., Tensor], start: int) -> None:
    @rule(name, static=(1,))
    def run(call: Call, x: Tensor, axis: Value) -> Tensor:
        dim, back = ints(axis)[0], bool(call.attr("reverse", 0))
        found = fn(x.flip([dim]) if back else x, dim).to(x.dtype)
        if call.attr("exclusive", 0) and x.shape[dim]:
            first = T.full_like(found.narrow(dim, 0, 1), start)
            found = T.cat([first, found.narrow(dim, 0, x.shape[dim] - 1)], dim)
        return found.flip([dim]) if back else found


_running("CumSum", T.cumsum, 0)
_running("CumProd", T.cumprod, 1)


def _rows(call: Call, x: Tensor, fn: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Before version 13 all dimensions from ``axis`` on are one."""
    if call.opset >= 13:
        return fn(x, call.attr("axis", -1))
    axis = call.attr("axis", 1) % max(x.dim(), 1)
    flat = x.reshape([math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])
    return fn(flat, 1).reshape(x.shape)


@rule("Softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    return _rows(call, x, lambda v, d: T.softmax(v, d))


@rule("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    return _rows(call, x, lambda v, d: T.log_softmax(v, d))


@rule("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    def run(v: Tensor, d: int) -> Tensor:
        if not v.numel():
            return v
        places = T.arange(v.shape[d]).reshape([-1 if n == d % v.dim() else 1 for n in range(v.dim())])
        return (T.argmax(v, d, True) == places).to(v.dtype)

    return _rows(call, x, run)


@rule("TopK", static=(1,))
def top_k(call: Call, x: Tensor, k: Value = None) -> Any:
    count, axis = ints(call.attr("k", k))[0], call.attr("axis", -1)
    values, places = T.sort(x, dim=axis, descending=bool(call.attr("largest", 1)), stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


@rule("NegativeLogLikelihoodLoss")
def nll_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    ignored = call.attr("ignore_index", -100)
    reduction = call.attr("reduction", "mean")
    return F.nll_loss(x, target.to(int64), weight, ignore_index=ignored, reduction=reduction)


@rule("SoftmaxCrossEntropyLoss")
def cross_entropy(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    logs = T.log_softmax(x, 1)
    loss = nll_loss(call, logs, target, weight)
    return (loss, logs) if call.results > 1 else loss
