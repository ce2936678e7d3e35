"""Methods that write to their operand, called often: machine code takes over, and nothing but time changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.frequent_calls import CALLS, data, needs_native_calls, served
from tracecomp.eager_kernels import background
from tracecomp.runtime.object_layout import objects_are_known

Tensor = torch.Tensor
pytestmark = pytest.mark.usefixtures("served_at_once")


def heat(write: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """Have ``write`` served for operands of these shapes."""
    for _ in range(2):
        for _ in range(CALLS):
            write(*[data(*shape) for shape in shapes])
        background.finish()


WRITES: dict[str, Callable[..., Any]] = {
    "add_": lambda x, y: x.add_(y), "add_ alpha": lambda x, y: x.add_(y, alpha=3), "mul_": lambda x, y: x.mul_(2.5),
    "clamp_": lambda x, y: x.clamp_(-0.5, 0.5), "exp_": lambda x, y: x.exp_(), "copy_": lambda x, y: x.copy_(y),
    "+=": lambda x, y: x.__iadd__(y), "lerp_": lambda x, y: x.lerp_(y, 0.3), "itself": lambda x, y: x.add_(x),
    "addcmul_": lambda x, y: x.addcmul_(y, y), "zero_": lambda x, y: x.zero_(), "row": lambda x, y: x.sub_(y[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_bits_object_and_count(name: str) -> None:
    write = WRITES[name]
    x, y = data(9, 7), data(9, 7) * 2
    wanted = write(x.clone(), y).numpy().copy()
    refused = background.refused()  # of other tests too
    heat(write, (9, 7), (9, 7))
    before, held = x._version, x.numpy()
    assert write(x, y) is x
    assert x._version == before + 1
    assert x.numpy().tobytes() == held.tobytes() == wanted.tobytes()
    if objects_are_known():
        assert not any("exp" in name or "add" in name for name, _ in background.refused()[len(refused) :])


@needs_native_calls
def test_they_are_served() -> None:
    heat(Tensor.add_, (9, 7), (9, 7))
    assert served(Tensor.add_)


@pytest.mark.parametrize("start", range(4))
def test_operands_that_overlap(start: int) -> None:
    heat(Tensor.add_, (8,), (8,))
    whole = data(16)
    array = whole.numpy().copy()
    array[:8] += array[start : start + 8].copy()
    whole[:8].add_(whole[start : start + 8])
    np.testing.assert_array_equal(whole.numpy(), array)


def test_what_backward_reads_is_not_overwritten_without_a_word() -> None:
    heat(Tensor.mul_, (8,), (8,))
    x, w = data(8), data(8).requires_grad_()
    loss = (x * w).sum()
    x.mul_(data(8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_views_of_what_has_got_a_history() -> None:
    heat(Tensor.mul_, (4,), (4,))
    leaf = data(4).requires_grad_()
    base = torch.ones(8)
    first, last = base[:4], base[4:]
    last.mul_(leaf)
    first.mul_(torch.full((4,), 3.0))
    last.mul_(torch.full((4,), 5.0))
    base.sum().backward()
    assert leaf.grad is not None
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(4, 5.0, np.float32))


def test_what_may_not_be_written() -> None:
    heat(Tensor.add_, (4,), (4,))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        data(4).requires_grad_().add_(data(4))
    with torch.inference_mode():
        inferred = torch.ones(4)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        inferred.add_(data(4))
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        torch.from_numpy(array).add_(data(4))
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.ones(1).expand(4).add_(data(4))
    np.testing.assert_array_equal(array, np.ones(4))


def test_operands_with_a_history_give_one() -> None:
    heat(Tensor.mul_, (4,), (4,))
    leaf = data(4).requires_grad_()
    x = torch.full((4,), 2.0)
    x.mul_(leaf).sum().backward()
    assert leaf.grad is not None
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(4, 2.0, np.float32))
