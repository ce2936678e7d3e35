"""``compile(..., verify=...)``: calls compared with eager ones in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.base import config
from tracecomp.base.errors import WrongResult
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.passes.graph import algebra


class Step:
    """A training step, and how often Python ran it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("verify", ["first", 2])
def test_state_goes_on_as_if_nothing_was_compared(verify: Any) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    found = []
    for options in ({}, {"verify": verify}):
        step = Step()
        run = torch.compile(step, **options)
        found.append(([run(x).item() for _ in range(6)], step.calls))
    assert found[0] == found[1]


def test_after_the_first_call_nothing_stands_in_between() -> None:
    run = torch.compile(lambda x: x * 2, verify="first")
    assert isinstance(run.__call__, Verifier)
    for _ in range(3):
        run(torch.ones(3))
    assert not isinstance(run.__call__, Verifier)


@pytest.mark.parametrize("mismatch", ["raise", "warn"])
def test_wrong_result_is_told(mismatch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(algebra, "is_right_identity", lambda op, value, dtype: op.name == "mul" and value in (1, 7))
    total = torch.zeros(3)

    def fn(x: Any) -> Any:
        total.add_(1)
        return x * 7.0

    with config.override(cache_dir=str(tmp_path)):  # keeps the miscompiled code out of other tests' cache
        run = torch.compile(fn, verify=2, mismatch=mismatch)
        run(torch.ones(3))
        if mismatch == "warn":
            with pytest.warns(UserWarning, match="call 2 of fn differs from the eager call"):
                run(torch.ones(3))
            np.testing.assert_array_equal(total.numpy(), [2, 2, 2])
        else:
            with pytest.raises(WrongResult, match="call 2 of fn differs from the eager call"):
                run(torch.ones(3))
            np.testing.assert_array_equal(total.numpy(), [1, 1, 1])  # as before that call


@pytest.mark.parametrize(("options", "word"), [({"verify": 0}, "verify"), ({"verify": "all"}, "verify"),
                                               ({"verify": 2, "mismatch": "log"}, "mismatch")])  # fmt: skip
def test_options_that_do_not_exist(options: Any, word: str) -> None:
    with pytest.raises(ValueError, match=f"{word} must be"):
        torch.compile(lambda x: x, **options)
