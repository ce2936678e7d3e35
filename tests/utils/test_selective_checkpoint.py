"""Selective checkpointing: kept results are not computed again, and gradients are those without it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import tracecomp
from tracecomp.library import ops
from tracecomp.utils._python_dispatch import TorchDispatchMode
from tracecomp.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Count(TorchDispatchMode):
    """Counts the operators that are computed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def save_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("policy", [save_products, [ops.aten.mm.default], lambda *args, **kwargs: False])
def test_what_is_kept_is_not_computed_again(policy: Any) -> None:
    w = tracecomp.randn(4, 4, requires_grad=True)
    x = tracecomp.randn(4, 4, requires_grad=True)

    def block(x: Any) -> Any:
        return (x @ w).tanh().exp()

    wanted = tracecomp.autograd.grad(block(x).sum(), (x, w))
    contexts = partial(create_selective_checkpoint_contexts, policy)
    count = Count()
    with count:
        y = checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum()
        forward = len(count.seen)
        found = tracecomp.autograd.grad(y, (x, w))
    for mine, plain in zip(found, wanted, strict=True):
        assert mine.equal(plain)
    again = count.seen[forward:]
    keeps = policy is save_products or isinstance(policy, list)
    assert again.count("aten.tanh.default") == 1 and again.count("aten.mm.default") == (2 if keeps else 3)
