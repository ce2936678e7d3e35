"""Python that runs when a compiled call's result is differentiated outside: hooks and ``autograd.Function``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.base.errors import CaptureError

reference = pytest.importorskip("torch")
Backward = Callable[[Any], Any]


def _tensor_hook(t: Any, w: Any, hook: Backward) -> Any:
    def program(x: Any) -> Any:
        y = x * w
        y.register_hook(hook)
        return y * 2

    return program


def _hook_made_in_the_call(t: Any, w: Any, hook: Backward) -> Any:
    def program(x: Any) -> Any:
        y = x * w
        y.register_hook(lambda g: hook(g) * x)
        return y * 2

    return program


def _function(t: Any, w: Any, hook: Backward) -> Any:
    class Scaled(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return hook(g)

    return lambda x: Scaled.apply(x * w)


def _module(t: Any, w: Any, hook: Backward) -> Any:
    m = t.nn.Linear(2, 2)
    m.weight, m.bias = t.nn.Parameter(t.ones(2, 2)), w
    m.register_full_backward_pre_hook(lambda m, g: (hook(g[0]),))
    return m


PROGRAMS = (_tensor_hook, _hook_made_in_the_call, _function, _module)


def _seen(t: Any, program: Any, hook_of: Callable[[dict[str, Any]], Backward], wrap: Any) -> list[Any]:
    """Gradients, and what hooks leave behind, after each of some calls between which ``k`` changes."""
    world: dict[str, Any] = {"k": 2.0, "log": []}
    w = t.nn.Parameter(t.ones(2))
    call = wrap(program(t, w, hook_of(world)))
    found = []
    for n in range(5):
        world["k"] = float(max(n, 2))
        w.grad = None
        y = call(t.ones(1, 2) * 3)
        before = len(world["log"])
        y.sum().backward()
        found.append((before, len(world["log"]), w.grad.flatten().tolist()))
    return found


def _reads(world: dict[str, Any]) -> Backward:
    return lambda g: g * world["k"]


def _appends(world: dict[str, Any]) -> Backward:
    def hook(g: Any) -> Any:
        world["log"].append(1.0)
        return g * 2

    return hook


def _catches_everything(world: dict[str, Any]) -> Backward:
    def hook(g: Any) -> Any:
        try:
            world["log"].append(world["k"])
        except Exception:
            return g
        return g * 2

    return hook


@pytest.mark.filterwarnings("ignore:graph break in", "ignore:Full backward hook is firing")
@pytest.mark.parametrize("hook", [_reads, _appends, _catches_everything], ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_every_backward_pass_runs_what_eager_mode_runs(program: Any, hook: Any) -> None:
    assert _seen(tc, program, hook, tc.compile) == _seen(reference, program, hook, lambda f: f)


def _kept(x: Any, w: Any) -> list[Any]:
    h = x * w
    h.retain_grad()
    return [h, (h * h).sum()]


def _two_kept(x: Any, w: Any) -> list[Any]:
    h = x * w
    k = h * 2
    h.retain_grad()
    k.retain_grad()
    return [k.sum(), k, h]


def _differentiated_inside(x: Any, w: Any) -> list[Any]:
    h = x * w
    h.retain_grad()
    (h * h).sum().backward(retain_graph=True)
    return [h, (h * 3).sum()]


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("program", [_kept, _two_kept, _differentiated_inside], ids=lambda f: f.__name__.strip("_"))
def test_retained_gradients_are_those_of_eager_mode(program: Any) -> None:
    seen: list[Any] = []
    for t, wrap in ((reference, lambda f: f), (tc, tc.compile)):
        w = t.ones(2, requires_grad=True)
        call = wrap(program)
        found = []
        for n in range(6):
            x = t.tensor([1.0 + n, 2.0])
            results = call(x, w)
            sum(r.sum() for r in results).backward()
            kept = [r.grad.tolist() for r in results if r.retains_grad]
            found.append((kept, w.grad.tolist()))
        seen.append(found)
    assert seen[0] == seen[1]


def test_a_hook_without_effects_leaves_one_graph() -> None:
    call = tc.compile(_tensor_hook(tc, tc.ones(2, requires_grad=True), lambda g: g * 2), fullgraph=True)
    for _ in range(3):
        call(tc.ones(2)).sum().backward()
    assert call.recordings == 1


def test_with_fullgraph_the_effect_is_named() -> None:
    seen: list[float] = []
    call = tc.compile(_tensor_hook(tc, tc.ones(2, requires_grad=True), lambda g: seen.append(1.0)), fullgraph=True)
    with pytest.raises(CaptureError, match="changes an object of class list in a backward pass outside of the call"):
        call(tc.ones(2))
    assert not seen
