"""Random numbers: tracecomp's own, which ``manual_seed`` decides; an operator's ``seed`` attribute is not used."""

from __future__ import annotations

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.onnx.registry import Call, rule
from tracecomp.onnx.rules.elementwise import dtype_of


def _uniform(call: Call, shape: list[int], number: int) -> Tensor:
    low, high = float(call.attr("low", 0.0)), float(call.attr("high", 1.0))
    return (T.rand(shape) * (high - low) + low).to(dtype_of(call, number))


def _normal(call: Call, shape: list[int], number: int) -> Tensor:
    scale, mean = float(call.attr("scale", 1.0)), float(call.attr("mean", 0.0))
    return (T.randn(shape) * scale + mean).to(dtype_of(call, number))


def _number(x: Tensor) -> int:
    kinds = {"float16": 10, "bfloat16": 16, "float64": 11}
    return kinds.get(np.dtype(x.dtype.numpy).name, 1)


@rule("RandomUniform")
def random_uniform(call: Call) -> Tensor:
    return _uniform(call, call.attr("shape"), call.attr("dtype", 1))


@rule("RandomUniformLike")
def random_uniform_like(call: Call, x: Tensor) -> Tensor:
    return _uniform(call, [*x.shape], call.attr("dtype", _number(x)))


@rule("RandomNormal")
def random_normal(call: Call) -> Tensor:
    return _normal(call, call.attr("shape"), call.attr("dtype", 1))


@rule("RandomNormalLike")
def random_normal_like(call: Call, x: Tensor) -> Tensor:
    return _normal(call, [*x.shape], call.attr("dtype", _number(x)))


@rule("Bernoulli")
def bernoulli(call: Call, x: Tensor) -> Tensor:
    return (T.rand(x.shape) < x).to(dtype_of(call, call.attr("dtype", _number(x))))


@rule("Multinomial")
def multinomial(call: Call, x: Tensor) -> Tensor:
    found = T.multinomial(T.softmax(x, -1), call.attr("sample_size", 1), True)
    return found.to(dtype_of(call, call.attr("dtype", 6)))
