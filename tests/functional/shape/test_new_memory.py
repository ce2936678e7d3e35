"""Results in memory that a function made are not views, however it computed them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracecomp as tc
from tracecomp.nn import functional as F

Tensor = tc.Tensor


def data() -> Tensor:
    return tc.arange(12.0).reshape(4, 3) / 7


NEW: dict[str, Callable[[Tensor], Tensor]] = {
    "keepdim": lambda x: x.logsumexp(-1, keepdim=True), "sum": lambda x: x.sum(0, keepdim=True),
    "std_mean": lambda x: tc.std_mean(x, 0, keepdim=True)[1], "pool": lambda x: F.adaptive_avg_pool2d(x[None, None], 1),
    "shuffle": lambda x: F.channel_shuffle(x[None], 1), "sums of one": lambda x: tc.einsum("ij->i", x[:, :1]),
}  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_results_in_new_memory_can_be_written(name: str) -> None:
    x, w = data().requires_grad_(), tc.ones((), requires_grad=True)
    with tc.no_grad():
        made = NEW[name](x)
    made.mul_(w)  # views made without gradients refuse this
    made.sum().backward()
    assert w.grad is not None and tc.equal(x.detach(), data())
    assert not NEW[name](x)._is_view()
    call = tc.compile(lambda x: NEW[name](x).mul_(2), wait=True)
    for fn in (call, lambda x: NEW[name](x).mul_(2)):
        found = fn(x)
        (grad,) = tc.autograd.grad(found.sum(), [x])
        assert grad.shape == x.shape and not found._is_view()
    assert tc.equal(call(x), NEW[name](x) * 2)


def test_results_can_be_written_while_tensors_without_memory_exist() -> None:
    kept = tc.ones(2, device="meta") + tc.ones(2, device="meta")
    test_results_in_new_memory_can_be_written("keepdim")
    assert kept.is_meta
