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
    """Return the results of a training step, and the gradients of all weights."""

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


def packed_step(model: Any, ordered: bool) -> Callable[..., Any]:
    rnn = nn.utils.rnn

    def step(x: Any, lengths: Any) -> Any:
        model.zero_grad()
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=ordered)
        out, final = model(packed)
        y, sizes = rnn.pad_packed_sequence(out, padding_value=-1.0)
        loss = y.square().mean() + sum(s.sum() for s in (final if isinstance(final, tuple) else (final,)))
        loss.backward()
        return y.detach(), sizes, loss.detach(), *(p.grad.clone() for p in model.parameters())

    return step


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["lstm, both ways", "gru", "lstm, two layers"])
@pytest.mark.parametrize("ordered", [False, True])
def test_packed_sequences_of_any_lengths_take_two_recordings(name: str, ordered: bool) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    eager, reference = packed_step(copy.deepcopy(model), ordered), packed_step(copy.deepcopy(model), ordered)
    compiled = torch.compile(packed_step(model, ordered))
    generator = np.random.default_rng(0)
    for n in (7, 5, 6, 8, 11, 9):
        sizes = generator.integers(1, n + 1, 4)
        sizes[0] = n
        lengths = torch.tensor(np.sort(sizes)[::-1].copy() if ordered else sizes[::-1].copy())
        x = torch.tensor(generator.standard_normal((n, 4, 4)).astype(np.float32))
        found, wanted = compiled(x, lengths), eager(x, lengths)
        for f, w, near in zip(found, wanted, by_numpy(reference)(x, lengths), strict=True):
            np.testing.assert_array_equal(f.numpy(), w.numpy())
            np.testing.assert_allclose(f.numpy(), near.numpy(), rtol=1e-4, atol=1e-4)
    assert compiled.recordings == 2, compiled.misses


def test_a_packed_argument_is_read_at_every_call() -> None:
    """A recording does not know the unpacked form of a packed argument; it does know its elements."""
    rnn, model = nn.utils.rnn, nn.GRU(2, 3)
    compiled = torch.compile(lambda packed: rnn.pad_packed_sequence(model(packed)[0])[0])
    for n in range(6):
        x, lengths = torch.full((4, 3, 2), float(n)), torch.tensor([4, 2, 2] if n % 2 else [4, 3, 1])
        wanted = rnn.pad_packed_sequence(model(rnn.pack_padded_sequence(x, lengths))[0])[0]
        np.testing.assert_array_equal(
            compiled(rnn.pack_padded_sequence(x, lengths)).detach().numpy(), wanted.detach().numpy()
        )


def test_a_packed_result_is_made_anew_by_every_call() -> None:
    rnn = nn.utils.rnn
    compiled = torch.compile(lambda x, lengths: rnn.pack_padded_sequence(x * 2, lengths))
    for n in range(5):
        x, lengths = torch.full((4, 3, 2), float(n)), torch.tensor([4, 2, 2])
        found, wanted = compiled(x, lengths), rnn.pack_padded_sequence(x * 2, lengths)
        assert type(found) is rnn.PackedSequence
        for f, w in zip(found[:2], wanted[:2], strict=True):
            np.testing.assert_array_equal(f.numpy(), w.numpy())
        padded, wanted_padded = (rnn.pad_packed_sequence(p)[0].numpy() for p in (found, wanted))
        np.testing.assert_array_equal(padded, wanted_padded)
