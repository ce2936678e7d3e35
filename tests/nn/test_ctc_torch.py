"""CTC loss whose lengths are tensors: one recording for all of them, checked in every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp as tc  # noqa: E402

STEPS, BATCH, CLASSES, WIDTH = 12, 3, 5, 4


def calls(count: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((STEPS, BATCH, CLASSES)), rng.integers(1, CLASSES, (BATCH, WIDTH)),
         rng.integers(0, STEPS + 1, BATCH), rng.integers(0, WIDTH + 1, BATCH))
        for _ in range(count)
    ]  # fmt: skip


def loss(t: Any, logits: Any, labels: Any, steps: Any, lengths: Any) -> Any:
    x = logits.detach().requires_grad_()
    value = t.nn.functional.ctc_loss(x.log_softmax(2), labels, steps, lengths, reduction="sum", zero_infinity=True)
    return value.detach(), t.autograd.grad(value, x)[0]


def test_lengths_may_differ_from_call_to_call() -> None:
    compiled = tc.compile(lambda *given: loss(tc, *given))
    for given in calls(6):
        want = loss(torch, *map(torch.from_numpy, given))
        for run in (lambda *x: loss(tc, *x), compiled):
            for w, f in zip(want, run(*map(tc.from_numpy, given)), strict=True):
                np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.recordings == 1


def test_targets_one_after_the_other() -> None:
    compiled = tc.compile(lambda *given: loss(tc, *given))
    for logits, labels, steps, _ in calls(4):
        lengths = np.random.default_rng(int(labels.sum())).permutation([1, 2, WIDTH])
        given = (logits, labels.reshape(-1)[: lengths.sum()], steps, lengths)
        want = loss(torch, *map(torch.from_numpy, given))
        for w, f in zip(want, compiled(*map(tc.from_numpy, given)), strict=True):
            np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.recordings == 1


@pytest.mark.parametrize("wrong", [(STEPS + 1, 2), (STEPS, WIDTH + 1)], ids=["steps", "labels"])
def test_lengths_beyond_the_data_are_refused_in_every_call(wrong: tuple[int, int]) -> None:
    logits, labels, *_ = map(tc.from_numpy, calls(1)[0])
    compiled = tc.compile(lambda *given: loss(tc, *given))
    good, bad = ([tc.full((BATCH,), n) for n in pair] for pair in ((STEPS, 2), wrong))
    for _ in range(3):
        compiled(logits, labels, *good)
    with pytest.raises(RuntimeError) as eager:
        loss(tc, logits, labels, *bad)
    with pytest.raises(RuntimeError) as found:
        compiled(logits, labels, *bad)
    assert str(found.value) == str(eager.value)
