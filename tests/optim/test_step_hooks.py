"""Hooks run around the step of every optimizer, also of classes that others wrote, once for each step."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as tc
from tracecomp.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Own(Optimizer):
    """An optimizer with a custom step."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.5})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-group["lr"])
        return "own"


class Above(tc.optim.SGD):
    """A step that calls that of its base."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return "above"


class Wrapper(Optimizer):
    """As libraries wrap optimizers: without the base class's ``__init__``."""

    def __init__(self, inner: Optimizer) -> None:
        self._optimizer_step_pre_hooks: dict[int, Any] = {}
        self._optimizer_step_post_hooks: dict[int, Any] = {}
        self._patch_step_function()
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


def made(kind: str) -> tuple[Any, Any]:
    p = tc.ones(2, requires_grad=True)
    makes = {
        "own": Own, "above": lambda ps: Above(ps, lr=0.5), "sgd": lambda ps: tc.optim.SGD(ps, lr=0.5),
        "lbfgs": lambda ps: tc.optim.LBFGS(ps, lr=0.5, max_iter=1),
    }  # fmt: skip
    return makes[kind]([p]), p


@pytest.mark.parametrize("kind", ["own", "above", "sgd", "lbfgs"])
@pytest.mark.parametrize("everywhere", [True, False])
def test_hooks_run_once_for_each_step(kind: str, everywhere: bool) -> None:
    optimizer, p = made(kind)
    seen: list[str] = []

    def loss() -> Any:
        optimizer.zero_grad()
        value = (p * p).sum()
        value.backward()
        return value

    before = register_optimizer_step_pre_hook if everywhere else optimizer.register_step_pre_hook
    after = register_optimizer_step_post_hook if everywhere else optimizer.register_step_post_hook
    handles = [
        before(lambda o, args, kwargs: seen.append(f"before {args[0] is o} {len(args)}")),
        after(lambda o, args, kwargs: seen.append("after")),
    ]
    try:
        loss()
        optimizer.step(loss)
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step(loss)
    assert seen == ["before True 2", "after"]


def test_a_hook_replaces_the_arguments() -> None:
    optimizer, p = made("sgd")
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7), kwargs))
    assert optimizer.step() == 7
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="new_args, new_kwargs"):
        optimizer.step()
    assert not p.grad


def test_a_wrapper_without_the_base_init_has_hooks() -> None:
    inner, p = made("own")
    wrapper = Wrapper(inner)
    seen: list[int] = []
    wrapper.register_step_post_hook(lambda *_: seen.append(1))
    p.grad = tc.ones(2)
    assert wrapper.step() == "own"
    assert seen == [1] and p.tolist() == [0.5, 0.5]


def test_compiled_steps_see_hooks_of_all() -> None:
    optimizer, p = made("sgd")

    def step() -> None:
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    compiled = tc.compile(step)
    for _ in range(4):
        compiled()
    seen: list[int] = []
    handle = register_optimizer_step_pre_hook(lambda *_: seen.append(1))
    try:
        compiled()
    finally:
        handle.remove()
    assert seen
