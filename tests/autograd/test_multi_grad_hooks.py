"""``register_multi_grad_hook`` and the questions about anomaly mode, as PyTorch answers them."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as tc


def observed(lib: Any, mode: str) -> list[Any]:
    """Return the hook's arguments in several passes over one graph."""
    seen: list[Any] = []

    def told(grads: Any) -> None:
        seen.append([None if g is None else g.tolist() for g in (grads if mode == "all" else [grads])])

    a, b = (lib.tensor([x, 2.0]).requires_grad_() for x in (1.0, 3.0))
    c, d = a * b, a + b
    handle = lib.autograd.graph.register_multi_grad_hook((a, b, c, d), told, mode=mode)
    c.sum().backward(retain_graph=True)
    seen.append("inputs")
    c.sum().backward(inputs=(a,), retain_graph=True)
    (c.sum() + d.prod()).backward(retain_graph=True)
    a2 = a * 2
    a2.sum().backward()
    handle.remove()
    c.sum().backward(retain_graph=True)
    with lib.autograd.graph.register_multi_grad_hook((a,), told, mode=mode):
        c.sum().backward(retain_graph=True)
    c.sum().backward()
    return seen


@pytest.mark.parametrize("mode", ["all", "any"])
def test_the_hook_is_called_as_in_pytorch(mode: str) -> None:
    torch = pytest.importorskip("torch")
    assert observed(tc, mode) == observed(torch, mode)


def test_all_gradients_come_once() -> None:
    a, b = tc.ones(2).requires_grad_(), tc.full((2,), 3.0).requires_grad_()
    seen: list[Any] = []
    handle = tc.autograd.graph.register_multi_grad_hook((a, b), seen.append)
    (a * b).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    assert [[g.tolist() for g in grads] for grads in seen] == [[[3.0, 3.0], [1.0, 1.0]]]
    with pytest.raises(ValueError, match="Expects mode"):
        tc.autograd.graph.register_multi_grad_hook((a,), seen.append, mode="some")


def test_anomaly_mode_answers() -> None:
    def answers() -> tuple[bool, bool]:
        return tc.is_anomaly_enabled(), tc.is_anomaly_check_nan_enabled()

    assert answers() == (False, True)
    with tc.autograd.detect_anomaly():
        assert answers() == (True, True)
        with tc.autograd.set_detect_anomaly(True, check_nan=False):
            assert answers() == (True, False)
            x = tc.zeros(1, requires_grad=True)
            (x.sqrt() * 0).sum().backward()
            assert bool(x.grad.isnan().all())
        assert answers() == (True, True)
        with pytest.raises(RuntimeError, match="nan"), pytest.warns(UserWarning):
            (tc.zeros(1, requires_grad=True).sqrt() * 0).sum().backward()
    assert answers() == (False, True)


def test_compiled_functions_ask_too() -> None:
    f = tc.compile(lambda x: x + 1 if tc.is_anomaly_enabled() else x - 1)
    for _ in range(3):
        assert float(f(tc.zeros(()))) == -1.0
    with tc.autograd.detect_anomaly():
        assert float(f(tc.zeros(()))) == 1.0
    assert float(f(tc.zeros(()))) == -1.0
