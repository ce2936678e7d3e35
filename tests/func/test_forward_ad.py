"""Dual tensors against PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tracecomp  # noqa: E402


def tangents(library: Any, fn: Any) -> tuple[list[float], list[float]]:
    ad = library.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(library.tensor([0.5, 1.5]), library.tensor([1.0, -2.0]))
        found = ad.unpack_dual(fn(library, dual))
        return found.primal.tolist(), found.tangent.tolist()


FUNCTIONS = {
    "identity": lambda t, x: x,
    "chain": lambda t, x: (x**2).sin() * 3,
    "in_place": lambda t, x: x.clone().mul_(x),
    "reduction": lambda t, x: t.softmax(x, 0),
    "matrix": lambda t, x: t.ones(2, 2) @ x,
    "stepped": lambda t, x: t.stack([x, x * x])[1:],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents(name: str) -> None:
    want, got = (tangents(library, FUNCTIONS[name]) for library in (torch, tracecomp))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(torch.tensor(b), torch.tensor(a))


def test_primals_keep_the_history_of_others() -> None:
    ad = tracecomp.autograd.forward_ad
    weight = tracecomp.tensor([3.0, 4.0], requires_grad=True)
    with ad.dual_level():
        dual = ad.make_dual(weight, tracecomp.tensor([1.0, 0.5]))
        tangent = ad.unpack_dual((dual**3).sum()).tangent
    tangent.backward()
    assert weight.grad.tolist() == [18.0, 12.0]  # 6 w t


def test_independent_results_have_no_tangent() -> None:
    ad = tracecomp.autograd.forward_ad
    x = tracecomp.ones(2)
    with ad.dual_level():
        ad.make_dual(x, x)
        assert ad.unpack_dual(x.exp()).tangent is None
        assert ad.unpack_dual(tracecomp.nn.Linear(2, 2)(x)).tangent is None
    assert ad.unpack_dual(x).tangent is None


def _outside(t: Any) -> None:
    t.autograd.forward_ad.make_dual(t.ones(1), t.ones(1))


def _nested(t: Any) -> None:
    with t.autograd.forward_ad.dual_level(), t.autograd.forward_ad.dual_level():
        pass


def _shapes(t: Any) -> None:
    with t.autograd.forward_ad.dual_level():
        t.autograd.forward_ad.make_dual(t.ones(2), t.ones(3))


def _integers(t: Any) -> None:
    with t.autograd.forward_ad.dual_level():
        t.autograd.forward_ad.make_dual(t.tensor([1]), t.tensor([1]))


@pytest.mark.parametrize("mistake", [_outside, _nested, _shapes, _integers])
def test_mistakes(mistake: Any) -> None:
    with pytest.raises(Exception) as want:
        mistake(torch)
    with pytest.raises(want.type):
        mistake(tracecomp)


@pytest.mark.parametrize("library", [torch, tracecomp], ids=["torch", "tracecomp"])
def test_inference_mode_ends_tangents_and_no_grad_does_not(library: Any) -> None:
    ad = library.autograd.forward_ad
    with ad.dual_level():
        x = ad.make_dual(library.ones(2), library.ones(2))
        with library.inference_mode():
            ended = x * 2
        with library.no_grad():
            kept = x * 2
        assert ad.unpack_dual(ended * 1).tangent is None
        assert ad.unpack_dual(kept * 1).tangent.tolist() == [2.0, 2.0]

    def fn(x: Any) -> Any:
        with library.inference_mode():
            return (x * 2).sum()

    assert library.func.jvp(fn, (library.ones(2),), (library.ones(2),))[1].item() == 0
