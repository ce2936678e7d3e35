"""Gradients that are enabled inside ``inference_mode``, and transforms around and inside of it, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

ENABLED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "operator": lambda torch, x, z: x * 2,
    "operator without gradients": lambda torch, x, z: z * 2,
    "factory": lambda torch, x, z: torch.ones(3),
    "leaf": lambda torch, x, z: torch.ones(3, requires_grad=True),
    "operator on a leaf": lambda torch, x, z: torch.ones(3, requires_grad=True) * 2,
    "copy": lambda torch, x, z: x.clone(),
    "write": lambda torch, x, z: torch.zeros(3).add_(x),
    "own leaf": lambda torch, x, z: z.clone().requires_grad_(),
    "view without gradients": lambda torch, x, z: z[:2],
    "backward": lambda torch, x, z: (x * x).sum().backward(),
    "gradient": lambda torch, x, z: torch.autograd.grad((x * x).sum(), x),
    "mode": lambda torch, x, z: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
}
TRANSFORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda torch, f, z: torch.func.grad(f)(z),
    "vjp": lambda torch, f, z: torch.func.vjp(f, z)[1](torch.ones(()))[0],
    "value of vjp": lambda torch, f, z: torch.func.vjp(f, z)[0],
    "jvp": lambda torch, f, z: torch.func.jvp(f, (z,), (z,)),
    "second": lambda torch, f, z: torch.func.grad(lambda u: torch.func.grad(f)(u).sum())(z),
}


def described(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return [described(t) for t in found]
    if hasattr(found, "grad_fn"):
        return found.tolist(), found.requires_grad, found.is_inference(), found.is_leaf
    return found


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return described(run())
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("name", ENABLED)
@pytest.mark.parametrize("way", ["enable_grad", "set_grad_enabled"])
def test_no_history_is_recorded(name: str, way: str) -> None:
    reference = pytest.importorskip("torch")

    def seen(torch: Any) -> Any:
        x, z = (torch.arange(3.0) + 1).requires_grad_(), torch.arange(3.0) + 1
        with torch.inference_mode(), torch.enable_grad() if way == "enable_grad" else torch.set_grad_enabled(True):
            found = outcome(lambda: ENABLED[name](torch, x, z))
        return found, torch.is_grad_enabled(), described(x.grad), described(x * 2)

    assert seen(tracecomp) == seen(reference)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("given", ["normal", "inference"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_take_inference_tensors(name: str, given: str, inside: bool) -> None:
    reference = pytest.importorskip("torch")

    def seen(torch: Any) -> Any:
        with torch.inference_mode():
            captured = torch.arange(3.0) + 2
            z = torch.arange(3.0) + 1
        z = torch.arange(3.0) + 1 if given == "normal" else z
        modes = []

        def f(v: Any) -> Any:
            modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.ones(1).is_inference()))
            return (v * v * captured).sum()

        with torch.inference_mode(inside):
            return outcome(lambda: TRANSFORMS[name](torch, f, z)), modes

    assert seen(tracecomp) == seen(reference)


def test_tensors_of_an_inner_inference_mode_raise() -> None:
    """They have no history: a gradient without it would be wrong."""

    def f(v: Any) -> Any:
        with tracecomp.inference_mode():
            inner = v * 2
        return (inner * v).sum()

    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        tracecomp.func.grad(f)(tracecomp.ones(3))


@pytest.mark.parametrize("name", ["grad", "vjp", "value of vjp", "jvp"])
def test_compiled_calls_in_transforms(name: str) -> None:
    def f(v: Any) -> Any:
        return (tracecomp.complex(v, v * 2).abs() * 3).sum()

    compiled = tracecomp.compile(f)
    for _ in range(3):
        with tracecomp.inference_mode():
            z = tracecomp.arange(3.0) + 1
            found, wanted = (described(TRANSFORMS[name](tracecomp, g, z)) for g in (compiled, f))
        assert found == wanted


def test_compiled_code_sees_enabled_gradients() -> None:
    def f(x: Any) -> Any:
        return x * 2 if tracecomp.is_grad_enabled() else x * 3

    compiled = tracecomp.compile(f)
    x = tracecomp.ones(3, requires_grad=True)
    for _ in range(3):
        with tracecomp.inference_mode():
            assert described(compiled(x)) == described(f(x))
            with tracecomp.enable_grad():
                assert described(compiled(x)) == described(f(x))
        assert described(compiled(x)) == described(f(x))
