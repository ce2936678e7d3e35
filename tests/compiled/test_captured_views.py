"""Captured views and aliases of other memory: their gradients, and what changes them, count as for other tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as tc

reference = pytest.importorskip("torch")

Made = tuple[Callable[[Any], Any], list[Any]]


def _view_of_a_leaf(t: Any) -> Made:
    w = t.arange(24.0).reshape(4, 6).requires_grad_()
    turned = w.t()
    return lambda x: (x @ turned) ** 2, [w]


def _leaf_that_is_a_view(t: Any) -> Made:
    w = t.arange(24.0).reshape(4, 6)
    turned = w.t().requires_grad_()
    return lambda x: (x @ turned) ** 2, [turned]


def _alias_with_its_own_gradient(t: Any) -> Made:
    w = t.arange(24.0).reshape(4, 6).requires_grad_()
    turned = w.detach().t().requires_grad_()
    return lambda x: (x @ turned + x @ w.t()) ** 2, [w, turned]


def _memory_written_under_no_grad(t: Any) -> Made:
    w = t.arange(24.0).reshape(4, 6)
    turned = w.t().requires_grad_()

    def program(x: Any) -> Any:
        with t.no_grad():
            w.add_(1)
        return (x @ turned + w.sum()) ** 2

    return program, [turned]


def _view_and_what_it_looks_at(t: Any) -> Made:
    w = t.arange(24.0).reshape(4, 6).requires_grad_()
    turned = w.t()
    return lambda x: (x @ turned + (w * w).sum(1)) ** 2, [w]


def _views_of_a_result(t: Any) -> Made:
    p = t.arange(24.0).requires_grad_()
    h = p * 2
    v = h[:6]
    u = h.view(4, 6)[1]
    return lambda x: (x * v * p[:6]) ** 2 + u * h[3:9], [p]


def _view_that_was_written(t: Any) -> Made:
    p = t.arange(24.0).requires_grad_()
    h = p * 2
    v = h[:6]
    v.mul_(3)
    u = h[2:8]
    return lambda x: (x * v * p[:6]) ** 2 + h[3:9] * u, [p]


PROGRAMS: tuple[Callable[[Any], Made], ...] = (
    _view_of_a_leaf, _leaf_that_is_a_view, _alias_with_its_own_gradient, _memory_written_under_no_grad,
    _view_and_what_it_looks_at, _views_of_a_result, _view_that_was_written,
)  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_gradients_reach_captured_views_and_what_is_behind_them(make: Callable[[Any], Made]) -> None:
    """As PyTorch gives them, in the recorded call and in those that it serves."""
    wanted: list[Any] = []
    found: list[Any] = []
    for library, results in ((reference, wanted), (tc, found)):
        program, leaves = make(library)
        call = tc.compile(program) if library is tc else program
        for _ in range(4):
            for leaf in leaves:
                leaf.grad = None
            call(library.ones(3, 6)).sum().backward(retain_graph=True)
            results.append([leaf.grad.tolist() for leaf in leaves])
    assert found == wanted


@pytest.mark.parametrize("how", [lambda w: w.t(), lambda w: w.detach(), lambda w: w[1:]])
def test_a_captured_view_that_requires_grad_from_now_on_is_noticed(how: Callable[[Any], Any]) -> None:
    """Also where the native call alone would look."""
    w = tc.arange(36.0).reshape(6, 6)
    view = how(w)
    call = tc.compile(lambda x: x * view[:, :3])
    for _ in range(4):
        assert not call(tc.ones(3)).requires_grad
    view.requires_grad_()
    for _ in range(4):
        view.grad = None
        call(tc.ones(3)).sum().backward()
        assert view.grad.sum() == view[:, :3].numel()
    view.requires_grad_(False)
    assert not call(tc.ones(3)).requires_grad


def test_hooks_of_a_captured_leaf_that_is_a_view_are_noticed() -> None:
    turned = tc.ones(2, 3).t().requires_grad_()

    @tc.compile
    def step(x: Any) -> Any:
        (gradient,) = tc.autograd.grad((x @ turned).sum(), turned)
        return gradient

    for _ in range(3):
        assert step(tc.ones(1, 3)).sum() == 6
    turned.register_hook(lambda g: g * 2)
    assert step(tc.ones(1, 3)).sum() == 12


def test_an_argument_that_a_captured_view_looks_at_may_be_another_one_later() -> None:
    w = tc.arange(6.0)
    view, alias = w[:3], w.detach()
    call = tc.compile(lambda x: x[:3] * 10 + view + alias[3:])
    for x in (w, w, w, tc.zeros(6), tc.ones(6), w):
        assert call(x).tolist() == (x[:3] * 10 + w[:3] + w[3:]).tolist()


def test_a_written_argument_that_a_captured_view_looks_at_may_be_another_one_later() -> None:
    w = tc.arange(6.0)
    view = w[:3]

    def program(x: Any) -> Any:
        x.add_(1)
        return x[:3] * 10 + view

    call = tc.compile(program)
    other = tc.zeros(6)
    for n, x in enumerate((w, w, w, other, other, w)):
        expected = [10 * (a + 1) + v for a, v in zip(x[:3].tolist(), view.tolist(), strict=True)]
        if x is w:
            expected = [11 * (a + 1) for a in x[:3].tolist()]
        assert call(x).tolist() == expected, n


def test_a_captured_view_of_what_an_attribute_holds_keeps_its_memory() -> None:
    """The attribute gets another tensor at every call."""

    class Holder:
        value = tc.arange(6.0)

    holder = Holder()
    holder.value = tc.arange(6.0)
    view = holder.value[:3]

    @tc.compile
    def program() -> Any:
        found = holder.value[:3] * 10 + view
        holder.value = holder.value + 1
        return found

    for n in range(6):
        assert program().tolist() == [10.0 * n, 11 + 10.0 * n, 22 + 10.0 * n]


def test_a_base_that_gets_its_memory_back_is_what_a_view_looks_at_again() -> None:
    """Then a view is written that is one of a leaf that requires grad, which is an error."""
    w = tc.ones(6)
    view = w[:3]
    own = w.data
    call = tc.compile(lambda x: view.mul_(x) * 1)
    for _ in range(3):
        call(tc.ones(1))
    w.data = tc.zeros(6)
    for _ in range(3):
        call(tc.ones(1))
    w.data = own
    w.requires_grad_()
    with contextlib.suppress(RuntimeError):  # eagerly, the first write says nothing yet
        call(tc.ones(1))
    with pytest.raises(RuntimeError, match="view of a leaf"):
        call(tc.ones(1))
