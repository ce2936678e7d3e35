"""The same models for jax: functions of a scope, which gives parameters by their torch names, and the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.workload import LEARNING_RATE, initial

Net = Callable[["Scope", Any], Any]


class Scope:
    """Parameters by name, made when first asked for; running statistics, and those of a training step."""

    def __init__(self, parameters: dict[str, Any], buffers: dict[str, Any], training: bool) -> None:
        self.parameters = parameters
        self.buffers = buffers
        self.training = training
        self.updated: dict[str, Any] = {}

    def __call__(self, name: str, *shape: int) -> Any:
        if name not in self.parameters:
            self.parameters[name] = initial(name, shape)
        return self.parameters[name]

    def running(self, name: str, size: int, value: float) -> Any:
        """A running statistic."""
        return self.buffers.setdefault(name, jnp.full(size, value, jnp.float32))

    def track(self, name: str, size: int, value: float, seen: Any) -> None:
        """Move a running statistic towards the observed value."""
        self.updated[name] = 0.9 * self.running(name, size, value) + 0.1 * seen


def _linear(p: Scope, name: str, x: Any, out: int) -> Any:
    return x @ p(f"{name}.weight", out, x.shape[-1]).T + p(f"{name}.bias", out)


def _layer_norm(p: Scope, name: str, x: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    y = d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    return y * p(f"{name}.weight", x.shape[-1]) + p(f"{name}.bias", x.shape[-1])


def _conv(p: Scope, name: str, x: Any, out: int, k: int, stride: int = 1, groups: int = 1) -> Any:
    """Without bias; the result of stride 1 is as large as the image."""
    w = p(f"{name}.weight", out, x.shape[1] // groups, k, k)
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(k // 2, k // 2)] * 2, feature_group_count=groups)


def _lenet_conv(p: Scope, name: str, x: Any, out: int, padding: int) -> Any:
    w = p(f"{name}.weight", out, x.shape[1], 5, 5)
    y = jax.lax.conv_general_dilated(x, w, (1, 1), [(padding, padding)] * 2)
    return y + p(f"{name}.bias", out)[:, None, None]


def _batch_norm(p: Scope, name: str, x: Any) -> Any:
    size = x.shape[1]
    if p.training:
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        count = x.size / size
        p.track(f"{name}.running_mean", size, 0, mean)
        p.track(f"{name}.running_var", size, 1, var * (count / (count - 1)))
    else:
        mean, var = p.running(f"{name}.running_mean", size, 0), p.running(f"{name}.running_var", size, 1)
    scale = p(f"{name}.weight", size) * jax.lax.rsqrt(var + 1e-5)
    return (x - mean[:, None, None]) * scale[:, None, None] + p(f"{name}.bias", size)[:, None, None]


def _max_pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _relu6(x: Any) -> Any:
    return jnp.clip(x, 0, 6)


def mlp(widths: tuple[int, ...]) -> Net:
    """See ``cases.nets``."""

    def net(p: Scope, x: Any) -> Any:
        for k, width in enumerate(widths[1:]):
            x = _linear(p, str(2 * k), jax.nn.relu(x) if k else x, width)
        return x

    return net


def lenet() -> Net:
    """See ``cases.nets``."""

    def net(p: Scope, x: Any) -> Any:
        x = _max_pool(jax.nn.relu(_lenet_conv(p, "0", x, 6, 2)))
        x = _max_pool(jax.nn.relu(_lenet_conv(p, "3", x, 16, 0)))
        x = x.reshape(x.shape[0], -1)
        x = jax.nn.relu(_linear(p, "7", x, 120))
        x = jax.nn.relu(_linear(p, "9", x, 84))
        return _linear(p, "11", x, 10)

    return net


def resnet(widths: tuple[int, ...]) -> Net:
    """See ``cases.nets``."""

    def block(p: Scope, name: str, x: Any, after: int, stride: int) -> Any:
        y = jax.nn.relu(_batch_norm(p, f"{name}.bn1", _conv(p, f"{name}.conv1", x, after, 3, stride)))
        y = _batch_norm(p, f"{name}.bn2", _conv(p, f"{name}.conv2", y, after, 3))
        return jax.nn.relu(y + (x if x.shape[1] == after else _conv(p, f"{name}.skip", x, after, 1, stride)))

    def net(p: Scope, x: Any) -> Any:
        x = jax.nn.relu(_batch_norm(p, "1", _conv(p, "0", x, widths[0], 3)))
        for k, width in enumerate(widths):
            x = block(p, f"3.{2 * k}", x, width, 1 if k == 0 else 2)
            x = block(p, f"3.{2 * k + 1}", x, width, 1)
        return _linear(p, "6", x.mean((2, 3)), 10)

    return net


def separable(widths: tuple[int, ...]) -> Net:
    """See ``cases.nets``."""

    def net(p: Scope, x: Any) -> Any:
        x = _relu6(_batch_norm(p, "1", _conv(p, "0", x, widths[0], 3, 2)))
        for k, (before, after) in enumerate(pairwise(widths)):
            at = 3 + 6 * k
            x = _conv(p, str(at), x, before, 3, 1 if before == after else 2, before)
            x = _relu6(_batch_norm(p, str(at + 1), x))
            x = _relu6(_batch_norm(p, str(at + 4), _conv(p, str(at + 3), x, after, 1)))
        return _linear(p, str(3 + 6 * (len(widths) - 1) + 2), x.mean((2, 3)), 10)

    return net


def gpt(vocabulary: int, width: int, heads: int, layers: int, context: int) -> Net:
    """See ``cases.nets``."""

    def attend(p: Scope, name: str, x: Any) -> Any:
        b, t, c = x.shape
        qkv = _linear(p, f"{name}.qkv", x, 3 * c).reshape(b, t, 3, heads, c // heads)
        q, k, v = (qkv[:, :, n] for n in range(3))
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, c)

    def net(p: Scope, index: Any) -> Any:
        t = index.shape[1]
        x = p("tokens.weight", vocabulary, width)[index] + p("positions.weight", context, width)[:t]
        for n in range(layers):
            name = f"blocks.{n}"
            x = x + _linear(p, f"{name}.proj", attend(p, name, _layer_norm(p, f"{name}.ln1", x)), width)
            y = _linear(p, f"{name}.fc1", _layer_norm(p, f"{name}.ln2", x), 4 * width)
            x = x + _linear(p, f"{name}.fc2", jax.nn.gelu(y, approximate=True), width)
        return _linear(p, "head", _layer_norm(p, "ln", x), vocabulary)

    return net


def lstm(vocabulary: int, width: int, layers: int) -> Net:
    """See ``cases.nets``."""

    def layer(p: Scope, n: int, x: Any) -> Any:
        w = p(f"lstm.weight_ih_l{n}", 4 * width, width)
        u = p(f"lstm.weight_hh_l{n}", 4 * width, width)
        bias = p(f"lstm.bias_ih_l{n}", 4 * width) + p(f"lstm.bias_hh_l{n}", 4 * width)

        def step(carry: Any, projected: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(projected + h @ u.T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[1], width), jnp.float32)
        return jax.lax.scan(step, (start, start), x @ w.T + bias)[1]

    def net(p: Scope, index: Any) -> Any:
        x = p("tokens.weight", vocabulary, width)[index].swapaxes(0, 1)
        for n in range(layers):
            x = layer(p, n, x)
        return _linear(p, "head", x.swapaxes(0, 1), vocabulary)

    return net


def blocks(hidden: tuple[int, ...]) -> Net:
    """See ``cases.large``."""

    def net(p: Scope, x: Any) -> Any:
        for k, width in enumerate(hidden):
            y = _linear(p, f"{k}.first", _layer_norm(p, f"{k}.norm", x), width)
            x = x + _linear(p, f"{k}.second", jax.nn.gelu(y, approximate=True), x.shape[-1])
        return x

    return net


def small_parameters(count: int) -> Net:
    """See ``cases.large``."""

    def net(p: Scope, x: Any) -> Any:
        each = (p(f"each.{k}", 3 + k % 5) for k in range(count))
        return x * sum((value * value).sum() for value in each)

    return net


def start(net: Net, inputs: Any, training: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first parameters and running statistics of ``net``."""
    scope = Scope({}, {}, training)
    with jax.ensure_compile_time_eval():
        net(scope, inputs)
    return {k: jnp.asarray(v) for k, v in scope.parameters.items()}, dict(scope.buffers)


def inference(net: Net, buffers: Mapping[str, Any]) -> Callable[..., Any]:
    """The model as a function of its parameters and the input."""
    return lambda parameters, x: net(Scope(dict(parameters), dict(buffers), False), x)


def training_step(net: Net, optimizer: str) -> Callable[..., Any]:
    """``step(parameters, buffers, moments, count, x, y)`` gives their successors and the loss."""

    def loss(parameters: Any, buffers: Any, x: Any, y: Any) -> Any:
        scope = Scope(dict(parameters), dict(buffers), True)
        logits = net(scope, x)
        scores = jax.nn.log_softmax(logits.reshape(-1, logits.shape[-1]))
        picked = jnp.take_along_axis(scores, y.reshape(-1, 1), 1)
        return -picked.mean(), scope.updated

    def step(parameters: Any, buffers: Any, moments: Any, count: Any, x: Any, y: Any) -> Any:
        (value, updated), grads = jax.value_and_grad(loss, has_aux=True)(parameters, buffers, x, y)
        update = {"sgd": _sgd, "adamw": _adamw}[optimizer]
        parameters, moments = update(parameters, grads, moments, count + 1)
        return parameters, {**buffers, **updated}, moments, count + 1, value

    return step


def _sgd(parameters: Any, grads: Any, moments: Any, count: Any) -> Any:
    return {k: p - LEARNING_RATE * grads[k] for k, p in parameters.items()}, moments


def _adamw(parameters: Any, grads: Any, moments: Any, count: Any) -> Any:
    """torch.optim.AdamW with its defaults."""
    first = {k: 0.9 * m + 0.1 * grads[k] for k, m in moments[0].items()}
    second = {k: 0.999 * m + 0.001 * grads[k] ** 2 for k, m in moments[1].items()}
    a, b = 1 - 0.9**count, jnp.sqrt(1 - 0.999**count)
    new = {
        k: p * (1 - LEARNING_RATE * 0.01) - LEARNING_RATE / a * first[k] / (jnp.sqrt(second[k]) / b + 1e-8)
        for k, p in parameters.items()
    }
    return new, (first, second)


def first_moments(parameters: Mapping[str, Any], optimizer: str) -> Any:
    """The optimizer's state before the first step."""
    zeros = {k: jnp.zeros_like(p) for k, p in parameters.items()}
    return (zeros, {k: jnp.zeros_like(p) for k, p in parameters.items()}) if optimizer == "adamw" else ()
