"""Views, in-place changes of shape and memory, and in-place writes in random order, compared with PyTorch.

A view keeps its own shape, strides and memory. Later changes of its base must not show in it; writes must.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

Step = tuple[str, int, int]
Tensors = list[Any]

VIEWS: dict[str, Callable[[Any, int], Any]] = {
    "row": lambda t, n: t[n % t.shape[0]] if t.ndim else t.view(()),
    "part": lambda t, n: t[n % t.shape[0] :] if t.ndim else t.view(()),
    "last axis": lambda t, n: t[..., n % t.shape[-1]] if t.ndim else t.view(()),
    "every other": lambda t, n: t[::2] if t.ndim else t.view(()),
    "transposed": lambda t, n: t.transpose(0, -1) if t.ndim else t.view(()),
    "unsqueezed": lambda t, n: t.unsqueeze(n % (t.ndim + 1)),
}
SHAPES: dict[str, Callable[[Any, int], Any]] = {
    "t_": lambda t, n: t.t_() if t.ndim < 3 else t,
    "transpose_": lambda t, n: t.transpose_(0, n % t.ndim) if t.ndim else t,
    "swapaxes_": lambda t, n: t.swapaxes_(-1, n % t.ndim) if t.ndim else t,
    "swapdims_": lambda t, n: t.swapdims_(0, -1) if t.ndim else t,
    "unsqueeze_": lambda t, n: t.unsqueeze_(n % (t.ndim + 1)) if t.ndim < 4 else t,
    "squeeze_": lambda t, n: t.squeeze_(),
}
# With gradients, PyTorch loses those of elements that a base shows no longer.
MEMORY: dict[str, Callable[[Any, int], Any]] = {
    "as_strided_": lambda t, n: t.as_strided_((2,), (1,)) if t.is_contiguous() and t.numel() > 1 else t,
    "resize_": lambda t, n: t.resize_(1 + n % t.numel()),
    "resize_ rows": lambda t, n: t.resize_(t.numel() // 2, 2) if t.numel() > 1 else t,
    "set_": lambda t, n: t.set_(t.new_full((2, 1 + n % 3), float(n))),
    "data": lambda t, n: setattr(t, "data", t.new_full(tuple(t.shape), float(n))),
    "data of another shape": lambda t, n: setattr(t, "data", t.new_full((1 + n % 3, 2), float(n))),
    "set_ to a part of itself": lambda t, n: t.set_(t.detach().reshape(-1)[:2]),
}
WRITES: dict[str, Callable[[Any, Any, int], Any]] = {
    "mul_": lambda t, w, n: t.mul_(1 + n % 3),
    "add_": lambda t, w, n: t.add_((w * (1 + n % 3)).sum()),
    "fill_": lambda t, w, n: t.fill_(n),
    "detached": lambda t, w, n: t.detach().add_(1),
}
ALIASES: dict[str, Callable[[Any], Any]] = {"detach": lambda t: t.detach(), "alias": lambda t: t.data}


def program(seed: int, memory: bool) -> list[Step]:
    draw = random.Random(seed)
    kinds: list[dict[str, Any]] = [
        VIEWS,
        VIEWS,
        VIEWS,
        SHAPES,
        SHAPES,
        WRITES,
        WRITES,
        ALIASES,
        MEMORY if memory else SHAPES,
    ]
    return [
        (draw.choice(sorted(draw.choice(kinds))), draw.randrange(100), draw.randrange(100))
        for _ in range(draw.randrange(4, 12))
    ]


def run(steps: list[Step], w: Any, tensors: Tensors) -> Tensors:
    """Run ``steps`` on ``tensors``, to which views are added. Writes read ``w``."""
    for name, at, n in steps:
        t = tensors[at % len(tensors)]
        if name in VIEWS:
            tensors.append(VIEWS[name](t, n))
        elif name in ALIASES:
            tensors.append(ALIASES[name](t))
        elif name in WRITES:
            WRITES[name](t, w, n)
        else:
            {**SHAPES, **MEMORY}[name](t, n)
    return tensors


def body(steps: list[Step], w: Any) -> Tensors:
    return run(steps, w, [w * 1])


def told(call: Callable[[Any], Tensors], T: Any, grad: bool) -> object:
    """Return elements, shapes, strides and the gradient after a call, or that it fails."""
    w = T.arange(6.0).reshape(3, 2).clone().requires_grad_(grad)
    try:
        found = call(w)
        shown: list[Any] = [
            (t.tolist(), tuple(t.shape), [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]) for t in found
        ]
        if grad:
            sum((t * (k + 1)).sum() for k, t in enumerate(found)).backward()
            shown.append(w.grad.tolist())
        found[0].detach().add_(1)  # which of the results share memory
        return [*shown, [t.tolist() for t in found]]
    except RuntimeError:
        return "fails"


@pytest.mark.parametrize("grad", [False, True])
def test_random_changes_are_those_of_torch(grad: bool) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(60):
        steps = program(seed, memory=not grad)
        call = functools.partial(body, steps)
        assert told(call, tracecomp, grad) == told(call, torch, grad), steps


@pytest.mark.parametrize("grad", [False, True])
def test_random_changes_compile(grad: bool) -> None:
    for seed in range(8):
        steps = program(seed, memory=not grad)
        call = functools.partial(body, steps)
        compiled = tracecomp.compile(lambda w, call=call: call(w), backend="interpret")
        expected = told(call, tracecomp, grad)
        for _ in range(3):
            assert told(compiled, tracecomp, grad) == expected, steps
