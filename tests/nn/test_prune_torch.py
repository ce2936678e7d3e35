"""Pruning against PyTorch: masks, stacked masks, training under a mask, removal, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.utils.prune")

import tracecomp as tc  # noqa: E402
import tracecomp.nn.utils.prune  # noqa: E402

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "l1": lambda p, m: p.l1_unstructured(m[0], "weight", 0.3),
    "l1 count": lambda p, m: p.l1_unstructured(m[0], name="weight", amount=5),
    "ln rows": lambda p, m: p.ln_structured(m[0], "weight", 0.4, n=2, dim=0),
    "ln columns": lambda p, m: p.ln_structured(m[0], "weight", 1, n=float("inf"), dim=-1),
    "twice": lambda p, m: [p.l1_unstructured(m[0], "weight", 0.3), p.l1_unstructured(m[0], "weight", 0.5)],
    "rows after elements": lambda p, m: [
        p.l1_unstructured(m[0], "weight", 0.5), p.ln_structured(m[0], "weight", 0.4, 1, 0)],
    "custom": lambda p, m: p.custom_from_mask(m[0], "bias", m[0].bias.detach() > 0),
    "identity": lambda p, m: p.identity(m[2], "weight"),
    "global": lambda p, m: p.global_unstructured([(m[0], "weight"), (m[2], "weight")], p.L1Unstructured, amount=0.4),
    "global twice": lambda p, m: [
        p.global_unstructured([(m[0], "weight"), (m[2], "weight")], p.L1Unstructured, amount=n) for n in (7, 9)],
    "removed": lambda p, m: p.remove(p.l1_unstructured(m[0], "weight", 0.3), "weight"),
}  # fmt: skip


def model(t: Any) -> Any:
    rng = np.random.default_rng(0)
    m = t.nn.Sequential(t.nn.Linear(6, 5), t.nn.Tanh(), t.nn.Linear(5, 2)).double()
    with t.no_grad():
        for p in m.parameters():
            p.copy_(t.from_numpy(rng.standard_normal(tuple(p.shape))))
    return m


@pytest.mark.parametrize("way", WAYS)
def test_masks_and_training_agree(way: str) -> None:
    def trained(t: Any, compiled: bool) -> Any:
        m = model(t)
        WAYS[way](t.nn.utils.prune, m)
        optimizer = t.optim.SGD(m.parameters(), 0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (m(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        call = tc.compile(step) if compiled else step
        rng = np.random.default_rng(1)
        losses = [call(t.from_numpy(rng.standard_normal((4, 6)))).item() for _ in range(4)]
        found = {k: v.numpy() for k, v in m.state_dict().items()}
        return losses, sorted(found), [found[k] for k in sorted(found)], t.nn.utils.prune.is_pruned(m)

    want = trained(torch, False)
    for compiled in (False, True):
        got = trained(tc, compiled)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
        assert got[1] == want[1] and got[3] == want[3]
        for g, w in zip(got[2], want[2], strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-15)


def test_random_pruning_masks_as_many() -> None:
    m = model(tc)
    tc.nn.utils.prune.random_unstructured(m[0], "weight", amount=7)
    tc.nn.utils.prune.random_structured(m[2], "weight", amount=0.4, dim=1)
    assert (m[0].weight == 0).sum().item() == 7
    assert (m[2].weight == 0).all(0).sum().item() == 2


@pytest.mark.parametrize("mistake", [
    lambda p, m: p.l1_unstructured(m[0], "weight", amount=1.5), lambda p, m: p.l1_unstructured(m[0], "weight", 31),
    lambda p, m: p.l1_unstructured(m[0], "weight", "a"), lambda p, m: p.ln_structured(m[0], "bias", 1, 2, 0),
    lambda p, m: p.ln_structured(m[0], "weight", 1, 2, 2), lambda p, m: p.remove(m[0], "weight"),
    lambda p, m: p.global_unstructured([(m[0], "weight")], p.LnStructured, amount=1, n=2),
])  # fmt: skip
def test_mistakes_are_refused_as_in_pytorch(mistake: Callable[[Any, Any], Any]) -> None:
    found = []
    for t in (torch, tc):
        with pytest.raises((TypeError, ValueError, IndexError)) as error:
            mistake(t.nn.utils.prune, model(t))
        found.append(error.type)
    assert found[0] is found[1]
