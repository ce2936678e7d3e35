"""swap_tensors: two objects exchange memory, history and attributes, or the swap is refused."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.utils import swap_tensors


class Tagged(tc.Tensor):
    """A subclass."""


def test_both_objects_remain() -> None:
    a: Any = tc.nn.Parameter(tc.ones(2))
    b: Any = tc.zeros(3, dtype=tc.float64).as_subclass(Tagged).clone()
    a.grad, a.tag, ids = tc.full((2,), 5.0), "a", (id(a), id(b))
    swap_tensors(a, b)
    assert (id(a), id(b)) == ids and type(a) is Tagged and type(b) is tc.nn.Parameter
    assert a.tolist() == [0, 0, 0] and a.dtype is tc.float64 and a.grad is None and not a.requires_grad
    assert b.tolist() == [1, 1] and b.grad.tolist() == [5, 5] and vars(b) == {"tag": "a"} and vars(a) == {}
    swap_tensors(a, a)
    assert a.tolist() == [0, 0, 0]


def test_gradients_reach_the_object_that_has_the_history() -> None:
    a, b = tc.ones(2, requires_grad=True), tc.zeros(2)
    swap_tensors(a, b)
    (b * 3).sum().backward()
    assert b.grad.tolist() == [3, 3] and a.grad is None


def test_a_gradient_of_a_swapped_leaf_is_refused() -> None:
    a, b = tc.ones(2, requires_grad=True), tc.zeros(2)
    loss = (a + 1).sum()
    swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        loss.backward()
    assert a.grad is None and b.grad is None


def test_a_backward_pass_that_saved_a_swapped_tensor_is_refused() -> None:
    w = tc.full((2,), 3.0, requires_grad=True)
    for a, b in ((tc.ones(2), tc.zeros(2)), (tc.ones(2).add_(1), tc.zeros(2)), (tc.ones(2), tc.zeros(2).add_(1))):
        for swapped in ((a, b), (b, a)):
            loss = (w * a).sum()
            swap_tensors(*swapped)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
            assert w.grad is None


def shared(kind: str, a: Any) -> Any:
    """Something else that refers to the memory of ``a``."""
    return {
        "view": lambda: a[1:], "alias": lambda: a.detach(), "data": lambda: a.data, "weak": lambda: weakref.ref(a),
    }[kind]()  # fmt: skip


@pytest.mark.parametrize("kind", ["view", "alias", "data", "weak"])
def test_shared_tensors_are_refused(kind: str) -> None:
    a, b = tc.ones(2, requires_grad=True), tc.zeros(3)
    other = shared(kind, a)
    for pair in ((a, b), (b, a)):
        with pytest.raises(RuntimeError, match=r"use_count of t[12]|Cannot swap t[12]"):
            swap_tensors(*pair)
    del other
    assert a.tolist() == [1, 1] and b.tolist() == [0, 0, 0]


def test_compiled_calls_read_the_object_anew() -> None:
    module = tc.nn.Linear(2, 1, bias=False)
    compiled = tc.compile(module)
    x = tc.ones(1, 2)
    with tc.no_grad():
        module.weight.fill_(1.0)
        assert [float(compiled(x)) for _ in range(3)] == [2, 2, 2]
        other = tc.nn.Parameter(tc.full((1, 2), 4.0))
        try:
            swap_tensors(module.weight, other)
        except RuntimeError:  # the recording refers to the memory
            assert float(compiled(x)) == 2
        else:
            assert float(compiled(x)) == 8
