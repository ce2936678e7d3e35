"""A program's reads of tensors other than values: each public name, for tensors that differ in nothing else.

A name of ``Tensor`` whose answer differs among them is guarded, or its call is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tracecomp as torch


def alike() -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of one dtype, shape and layout, in different states."""

    def ones(requires_grad: bool = False) -> torch.Tensor:
        return torch.ones(3, 4, requires_grad=requires_grad)

    yield "plain", ones()
    yield "view", torch.ones(4, 4)[1:]
    yield "view of the beginning", torch.ones(4, 4)[:3]
    yield "shared among processes", ones().share_memory_()
    yield "written", ones().add_(0)
    yield "detached", ones(True).detach()
    with torch.inference_mode():
        yield "made in inference mode", ones()
    yield "leaf", ones(True)
    yield "with history", ones(True) * 1
    retaining, graded, hooked, tagged = ones(True) * 1, ones(True), ones(True), ones()
    retaining.retain_grad()
    yield "retains its gradient", retaining
    graded.sum().backward()
    yield "with a gradient", graded
    hooked.register_hook(lambda g: g * 2)
    yield "with a hook", hooked
    yield "parameter", torch.nn.Parameter(ones())
    yield "frozen parameter", torch.nn.Parameter(ones(), requires_grad=False)
    tagged.tag = 1  # type: ignore[attr-defined]
    yield "with an attribute", tagged


PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.Size, torch.layout, torch.device)


def answer(t: torch.Tensor, name: str) -> Any:
    """The attribute, or what the method returns without arguments, if it is a plain value."""
    try:
        found = getattr(t, name)
        found = found() if callable(found) else found
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        return type(error)
    return found if isinstance(found, PLAIN) else type(found)


def names() -> list[str]:
    """The public names whose answers are plain values that differ among alike tensors, but addresses."""
    public = [n for n in dir(torch.Tensor) if not n.startswith("_") and not n.endswith("_") and n != "data_ptr"]
    asked = [n for n in public if not isinstance(answer(torch.ones(3, 4), n), type)]
    return [n for n in asked if len({str(answer(t, n)) for _, t in alike()}) > 1]


@pytest.mark.filterwarnings("ignore")
def test_answers_are_those_of_eager_mode() -> None:
    differing = names()
    assert {"is_leaf", "requires_grad", "is_shared", "storage_offset", "is_inference"} <= set(differing)
    for name in differing:
        compiled = torch.compile(lambda t, name=name: (answer(t, name), t * 2), dynamic=False)
        for _ in range(3):
            for state, t in alike():
                assert compiled(t)[0] == answer(t, name), (name, state)


def test_arguments_with_and_without_a_gradient_in_turn() -> None:
    """No hook or module changes between the calls: native code compares them."""

    def tensor(graded: bool) -> torch.Tensor:
        t = torch.ones(3, requires_grad=True)
        if graded:
            t.sum().backward()
        return t

    compiled = torch.compile(lambda t: (t.grad is None, t * 2), dynamic=False)
    for n in range(40):
        assert compiled(tensor(n % 3 == 0))[0] == (n % 3 > 0)
