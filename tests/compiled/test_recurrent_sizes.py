"""Recurrent layers over sequences of any length: one compilation for a range of lengths, with the bits of each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import by_numpy
from tracecomp import nn

LENGTHS = (7, 5, 6, 8, 11, 12, 9, 10, 20, 17, 24, 23)
"""Within the ranges 5 to 6, 7 to 8, 9 to 12 and 17 to 24."""


def learned(model: Any) -> Callable[[Any], Any]:
    """What a step of training leaves: the results, and the gradients of all weights."""

    def step(x: Any) -> Any:
        model.zero_grad()
        out, final = model(x)
        (out.square().mean() + out[-1].sum()).backward()
        states = final if isinstance(final, tuple) else (final,)
        return (out.detach(), *(s.detach() for s in states), *(p.grad.clone() for p in model.parameters()))

    return step


MODELS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: nn.LSTM(4, 6),
    "lstm, both ways": lambda: nn.LSTM(4, 6, bidirectional=True),
    "lstm, two layers": lambda: nn.LSTM(4, 6, num_layers=2),
    "lstm with a projection": lambda: nn.LSTM(4, 6, proj_size=3),
    "lstm of one": lambda: nn.LSTM(1, 1),
    "gru": lambda: nn.GRU(4, 6),
    "gru, both ways": lambda: nn.GRU(4, 6, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 6),
    "rnn with relu": lambda: nn.RNN(4, 6, nonlinearity="relu", bias=False),
}


def check(make: Callable[[], Any], width: int, batch: int, lengths: Sequence[int]) -> Any:
    """Steps of training at ``lengths``: the bits of eager steps, and near the interpreter's results."""
    torch.manual_seed(0)
    model = make()
    eager, reference = learned(copy.deepcopy(model)), learned(copy.deepcopy(model))
    compiled = torch.compile(learned(model))
    generator = np.random.default_rng(0)
    for n in lengths:
        x = torch.tensor(generator.standard_normal((n, batch, width)).astype(np.float32))
        for found, wanted, near in zip(compiled(x), eager(x), by_numpy(reference)(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
            np.testing.assert_allclose(found.numpy(), near.numpy(), rtol=1e-4, atol=1e-4)
    return compiled


def programs(compiled: Any) -> int:
    """How many programs serve more than one size each."""
    (entry,) = [e for e in compiled.entries if e.is_sized()]
    return sum(not made.exact for made in entry.plan.forward.made)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_a_range_of_lengths(name: str) -> None:
    compiled = check(MODELS[name], 1 if name == "lstm of one" else 4, 3, LENGTHS)
    assert compiled.recordings == 2, compiled.misses
    assert programs(compiled) == 4


def test_sums_over_many_steps_have_the_stages_of_the_length() -> None:
    """A bias' gradient is one sum over all steps and sequences, in blocks from some length on."""
    compiled = check(MODELS["gru"], 4, 40, (30, 24, 200, 150, 140, 129, 700))
    assert compiled.recordings == 2, compiled.misses


def test_a_step_never_sees_what_lies_behind_the_end() -> None:
    """Carries that padding would change at once: what each step multiplies is infinite behind the end."""

    def run(x: Any) -> Any:
        return torch._higher_order_ops.scan(lambda c, a: (c * 2 + 1 / a, c.clone()), torch.ones(2), x)

    compiled = torch.compile(run)
    for n in (5, 7, 9, 11, 6, 12):
        x = torch.arange(1.0, 2 * n + 1).reshape(n, 2)
        for found, wanted in zip(compiled(x), run(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert compiled.recordings <= 3, compiled.misses
