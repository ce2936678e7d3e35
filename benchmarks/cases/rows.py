"""Softmax, norms, losses and statistics along rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Workload, inputs, integers, normal


def softmax(xp: Any) -> Any:
    def f(x: Any) -> Any:
        e = xp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return f


def _layer_norm(xp: Any) -> Any:
    def f(x: Any, w: Any, b: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d / xp.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b

    return f


def _cross_entropy(xp: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return (_log_sum_exp(xp)(x) - xp.take_along_axis(x, y[:, None], 1)[:, 0]).mean()

    return f


def _entropy_grad(lib: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        x = x.detach().requires_grad_()
        loss = lib.nn.functional.cross_entropy(x, y)
        return lib.autograd.grad(loss, x)[0]

    return f


def _entropy_grad_jax(xp: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return (softmax(xp)(x) - (y[:, None] == xp.arange(x.shape[1]))) / x.shape[0]

    return f


def _batch_norm(lib: Any) -> Any:
    return lambda x: lib.nn.functional.batch_norm(x, None, None, training=True)


def _batch_norm_jax(xp: Any) -> Any:
    def f(x: Any) -> Any:
        d = x - x.mean((0, 2, 3), keepdims=True)
        return d / xp.sqrt((d * d).mean((0, 2, 3), keepdims=True) + 1e-5)

    return f


def _sum(axis: int) -> Any:
    return lambda xp: lambda x: x.sum(axis)


def _argmax(axis: int) -> Any:
    return lambda xp: lambda x: x.argmax(axis)


def _log_sum_exp(xp: Any) -> Any:
    def f(x: Any) -> Any:
        top = x.max(-1, keepdims=True)
        return xp.log(xp.exp(x - top).sum(-1)) + top[:, 0]

    return f


def _statistics(lib: Any) -> Any:
    return lambda x: (x.mean(0), x.std(0), x.amax(0))


def _statistics_jax(xp: Any) -> Any:
    return lambda x: (x.mean(0), x.std(0, ddof=1), x.max(0))


def _row(
    name: str,
    shape: tuple[int, ...],
    torch: Any,
    jax: Any,
    written: float,
    extra: Any = (),
    tolerance: float = 1e-4,
    export: bool = True,
) -> Workload:
    """``written`` is the size of the output relative to the input."""
    label = "x".join(map(str, shape))
    return Workload(
        "rows and columns", f"{name} {label}", inputs(normal(*shape), *extra), torch, jax,
        bytes=4 * np.prod(shape).item() * (1 + written), tolerance=tolerance, export=export,
    )  # fmt: skip


_SHAPES = ((64, 10), (512, 64), (4096, 512), (1000, 777))

WORKLOADS = [
    *(_row("softmax", s, lambda lib: lambda x: lib.softmax(x, -1), softmax, 1) for s in _SHAPES),
    *(
        _row(
            "layer norm", s, lambda lib: lambda x, w, b: lib.nn.functional.layer_norm(x, (x.shape[1],), w, b),
            _layer_norm, 1, (normal(s[1]), normal(s[1])),
        )
        for s in ((64, 128), (4096, 768))
    ),
    *(
        _row(
            "cross entropy", s, lambda lib: lambda x, y: lib.nn.functional.cross_entropy(x, y), _cross_entropy, 0,
            (integers(s[1], s[0]),),
        )
        for s in ((64, 10), (512, 1000), (2048, 8000))
    ),
    *(
        _row("cross entropy gradient", s, _entropy_grad, _entropy_grad_jax, 1, (integers(s[1], s[0]),), export=False)
        for s in ((64, 10), (2048, 1000))
    ),
    _row("batch norm", (32, 64, 28, 28), _batch_norm, _batch_norm_jax, 1),
    *(_row("sum of rows", s, _sum(1), _sum(1), 0) for s in _SHAPES[1:]),
    *(_row("sum of columns", s, _sum(0), _sum(0), 0, (), 1e-3) for s in _SHAPES[1:]),
    *(_row("mean, std, max of columns", s, _statistics, _statistics_jax, 0) for s in _SHAPES[1:3]),
    *(_row("argmax of rows", s, _argmax(1), _argmax(1), 0) for s in _SHAPES[1:]),
    _row("argmax of columns", (4096, 512), _argmax(0), _argmax(0), 0),
    _row("logsumexp", (4096, 512), lambda lib: lambda x: lib.logsumexp(x, 1), _log_sum_exp, 0),
]  # fmt: skip
