"""Backward passes over graphs of one form: a program takes over; gradients, errors and visible state stay the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.eager.unheard import Unheard
from tracecomp.autograd import walks
from tracecomp.autograd.walks import AFTER, Walk
from tracecomp.eager.device import use
from tracecomp.eager_kernels import background
from tracecomp.nn import functional as F

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Walk]]:
    """The walks that programs have run."""
    monkeypatch.setattr(background, "REST", 0.0)
    monkeypatch.setattr(use, "begun", Unheard())
    served: list[Walk] = []
    serve = Walk.serve

    def noted(self: Walk, *args: Any) -> bool:
        done = serve(self, *args)
        served.extend([self] if done else [])
        return done

    monkeypatch.setattr(Walk, "serve", noted)
    walks._walks.clear()
    background.finish()
    yield served
    background.finish()


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return data(*shape, seed=seed).requires_grad_()


def heat(call: Callable[[], Any]) -> None:
    for _ in range(6):
        for _ in range(AFTER + 1):
            call()
        background.finish()


def bits(*tensors: Tensor | None) -> list[bytes | None]:
    return [None if t is None else t.detach().numpy().tobytes() for t in tensors]


def lstm_like(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = torch.zeros(4, 5)
    for step in x.unbind(1):
        h = torch.tanh(step @ w + h * b)
    return h.square().mean()


CASES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "number": lambda x, w, b: (x * 2.5).sum(),
    "mlp": lambda x, w, b: F.cross_entropy(F.relu(x.reshape(-1, 6) @ w + b), torch.arange(12) % 5),
    "shared": lambda x, w, b: ((x @ w) * b + (x @ w).exp() - b.sum() * w.mean()).mean(),
    "views": lambda x, w, b: (x.permute(1, 0, 2)[1:, ::2].flatten() * 3).cumsum(0).amax() + w.t()[2].sum() * b[0],
    "norm": lambda x, w, b: F.layer_norm(x @ w, (5,), b, b).softmax(-1).std(),
    "index": lambda x, w, b: x[torch.tensor([0, 2, 0])].prod() + w.gather(0, torch.zeros(2, 5, dtype=torch.long)).sum(),
    "scan": lstm_like,
    "types": lambda x, w, b: (x.double() @ w.double()).float().sum() + b.half().sum().float(),
    "leaf twice": lambda x, w, b: torch.cat([b, b, w[0]]).norm() + x.sum() - x.mean(),
    "convolution": lambda x, w, b: F.max_pool2d(F.conv2d(x[None], w[:3, :3].expand(2, 4, 3, 3)), 1).sum() + b.sum(),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_keep_their_bits(name: str, _served: list[Walk]) -> None:
    given = [leaf(4, 3, 6, seed=1), leaf(6, 5, seed=2), leaf(5, seed=3)]

    def step() -> list[bytes | None]:
        for t in given:
            t.grad = None
        CASES[name](*given).backward()
        return bits(*[t.grad for t in given])

    wanted = step()
    heat(step)
    _served.clear()
    assert step() == wanted
    assert _served, background.refused()
    for t in given:  # other numbers
        with torch.no_grad():
            t.copy_(data(*t.shape, seed=9))
    found = step()
    walks._walks.clear()
    assert step() == found


def loss(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w).exp() * 2).sum()


def test_gradients_accumulate_in_place(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: loss(x, w).backward())
    x.grad = w.grad = None
    loss(x, w).backward()
    once, kept, version = [bits(x.grad)[0], bits(w.grad)[0]], x.grad, x.grad._version
    _served.clear()
    loss(x, w).backward()
    assert _served and x.grad is kept and x.grad._version > version
    doubled = [np.frombuffer(g, np.float32) * 2 for g in once if g is not None]
    assert all(np.array_equal(g.numpy(), d) for g, d in zip((x.grad, w.grad), doubled, strict=True))


def test_a_graph_is_freed_or_retained(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: loss(x, w).backward())
    result = loss(x, w)
    _served.clear()
    result.backward(retain_graph=True)
    result.backward()
    assert len(_served) == 2
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()
    saved = x.detach().clone() + 1
    ref = weakref.ref(saved)
    result = (w * saved).exp().sum()
    result.backward()
    del saved
    gc.collect()
    assert ref() is None


def test_a_changed_operand_is_an_error(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), data(3, seed=2)
    heat(lambda: loss(x, w).backward())
    result = loss(x, w)
    w.add_(1)
    x.grad = None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
    assert x.grad is None


def _on_tensor(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.register_hook(seen.append)


def _on_leaf(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    x.register_hook(seen.append)


def _after_leaf(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    x.register_post_accumulate_grad_hook(seen.append)


def _on_node(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))


def _before_node(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.grad_fn.register_prehook(lambda outputs: seen.append(outputs))


@pytest.mark.parametrize("hook", [_on_tensor, _on_leaf, _after_leaf, _on_node, _before_node])
def test_hooks_are_called(hook: Callable[[Tensor, Tensor, list[Any]], None]) -> None:
    x, w = leaf(3, seed=1), data(3, seed=2)
    heat(lambda: (x * w).exp().sum().backward())
    seen: list[Any] = []
    y = x * w
    hook(x, y, seen)
    y.exp().sum().backward()
    assert len(seen) == 1


def test_retained_gradients_and_differentiable_passes(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: (x * w).exp().sum().backward())
    y = x * w
    y.retain_grad()
    y.exp().sum().backward()
    assert y.grad is not None
    x.grad = None
    (x * w).exp().sum().backward(create_graph=True)
    assert x.grad is not None and x.grad.requires_grad
    x.grad = w.grad = None
    y = x * w
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="ExpBackward0"):
        y = y * float("inf") * 0.0
        with pytest.raises(RuntimeError, match="nan"):
            y.exp().sum().backward()


def test_own_functions_and_other_roots_take_the_engine() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 3

    x = leaf(3)

    def step() -> Tensor:
        x.grad = None
        Doubled.apply(x).sum().backward()
        return x.grad

    heat(step)
    assert step().tolist() == [3.0] * 3
    x.grad = None
    torch.autograd.backward([x.sum(), (x * 2).sum()])
    assert x.grad.tolist() == [3.0] * 3


def test_forms_differ_by_attributes_and_edges(_served: list[Walk]) -> None:
    x, w = leaf(4, 4, seed=1), leaf(4, 4, seed=2)
    forms: list[Callable[[], Tensor]] = [
        lambda: (x * w).sum(0).max(), lambda: (x * w).sum(1).max(), lambda: (x * x).sum(0).max(),
        lambda: (w * x).sum(0).max(), lambda: (x[1:] * w[1:]).sum(0).max(), lambda: (x[:3] * w[:3]).sum(0).max(),
    ]  # fmt: skip

    def step(fn: Callable[[], Tensor]) -> list[bytes | None]:
        x.grad = w.grad = None
        fn().backward()
        return bits(x.grad, w.grad)

    wanted = [step(fn) for fn in forms]
    for fn in forms:
        heat(lambda fn=fn: step(fn))
    _served.clear()
    assert [step(fn) for fn in forms] == wanted
    assert len(_served) == len(forms)
