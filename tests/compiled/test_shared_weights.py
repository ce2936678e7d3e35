"""Weights that a program keeps packed, and whose memory other code gets afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn

SHARE: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda w: w.detach().numpy(),
    "a view's numpy": lambda w: w.detach()[1:].numpy(),
    "buffer protocol": lambda w: np.asarray(w.detach()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("share", SHARE)
def test_a_weight_that_numpy_gets_is_no_longer_packed(share: str, dynamic: bool) -> None:
    layer = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).requires_grad_(False)
    rows = [torch.randn(n, 256) for n in ((32, 33, 40, 41) if dynamic else (32,))]
    compiled = torch.compile(layer, dynamic=dynamic)

    def check() -> None:
        for x in rows:
            assert compiled(x).numpy().tobytes() == layer(x).numpy().tobytes()

    for _ in range(3):
        check()
    shared = SHARE[share](layer[0].weight)
    for _ in range(3):
        check()
        shared[:] = shared * 0.5 + 0.01
    plans = [e.plan for e in compiled.entries if e.plan is not None]
    assert plans
    for plan, x in ((plan, x) for plan in plans for x in rows):
        sizes = None if plan.sized is None else plan.sized.guard.sizes([x])
        if plan.is_ready(sizes):
            _, seen = plan._runner(sizes)
            assert not any(memory is layer[0].weight._shared_storage().memory for memory in seen or ())
