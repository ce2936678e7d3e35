"""Functions check the values of their arguments in every call: eager, compiled, mapped, exported."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracecomp as torch
from tracecomp.nn import functional as F

CHECKED: dict[str, tuple[Callable[[Any], Any], Callable[[float], bool]]] = {
    "bernoulli": (torch.bernoulli, lambda p: 0 <= p <= 1),
    "bernoulli_": (lambda p: torch.zeros(3).bernoulli_(p), lambda p: 0 <= p <= 1),
    "normal": (lambda std: torch.normal(torch.zeros(3), std), lambda std: not std < 0),
    "multinomial": (lambda w: torch.multinomial(w, 2, replacement=True), lambda w: 0 <= w < float("inf")),
    "written before": (lambda p: torch.bernoulli(p.mul_(0.5)) + p, lambda p: 0 <= p <= 2),
    "binary_cross_entropy": (lambda p: F.binary_cross_entropy(p, torch.ones(3)), lambda p: 0 <= p <= 1),
    "its target": (lambda p: F.binary_cross_entropy(torch.full((3,), 0.5), p), lambda p: 0 <= p <= 1),
    "quantile": (lambda q: torch.quantile(torch.arange(4.0), q), lambda q: 0 <= q <= 1),
    "cov": (lambda w: torch.cov(torch.arange(3.0), aweights=w), lambda w: not w < 0),
}
VALUES = st.sampled_from([0.0, 0.25, 1.0, 1.0 + 1e-6, -1e-9, 2.0, -3.0, float("nan"), float("inf")])


def outcome(fn: Callable[..., Any], x: Any) -> tuple[str, str]:
    """The result or the message, and the argument after the call."""
    torch.manual_seed(0)
    try:
        seen = str(fn(x).tolist())  # a text, because nan differs from itself
    except RuntimeError as error:
        seen = f"error: {error}"
    return seen, str(x.tolist())


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize("name", CHECKED)
@settings(max_examples=3)
@given(st.lists(st.tuples(VALUES, st.integers(0, 2)), min_size=3, max_size=8))
def test_compiled_calls_raise_what_eager_calls_raise(name: str, backend: str, calls: list[tuple[float, int]]) -> None:
    fn, valid = CHECKED[name]
    compiled = torch.compile(fn, backend=backend)
    for value, place in itertools.chain([(0.5, 0)] * 3, calls):
        x = torch.full((3,), 0.5)
        x[place] = value
        seen = outcome(compiled, x.clone())
        assert seen == outcome(fn, x.clone())
        assert seen[0].startswith("error") is not valid(value)


@pytest.mark.parametrize("name", ["bernoulli", "normal", "binary_cross_entropy"])
def test_a_mapped_call_checks_all_rows(name: str) -> None:
    mapped = torch.func.vmap(CHECKED[name][0], randomness="different")
    assert mapped(torch.full((4, 3), 0.5)).shape[0] == 4
    bad = torch.full((4, 3), 0.5)
    bad[3, 1] = -1.0
    with pytest.raises(RuntimeError):
        mapped(bad)


def test_an_exported_program_keeps_its_checks() -> None:
    class Draw(torch.nn.Module):
        def forward(self, p: Any) -> Any:
            return torch.bernoulli(p)

    program = torch.export.export(Draw(), (torch.rand(3),)).module()
    assert set(program(torch.tensor([0.0, 1.0, 1.0])).tolist()) == {0.0, 1.0}
    with pytest.raises(RuntimeError):
        program(torch.tensor([0.5, 2.0, 0.5]))


def test_gradients_pass_through_a_check() -> None:
    def loss(p: Any) -> Any:
        return F.binary_cross_entropy(p, torch.full((3,), 0.25))

    compiled = torch.compile(loss)
    for value in (0.5, 0.5, 0.25, 0.75):
        grads = []
        for fn in (loss, compiled):
            p = torch.full((3,), value, requires_grad=True)
            fn(p).backward()
            grads.append(p.grad.tolist())
        assert grads[0] == grads[1]
