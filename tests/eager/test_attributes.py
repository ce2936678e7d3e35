"""Attributes of tensors as a whole: libraries copy ``__dict__`` from one tensor to another."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tracecomp as tc

pytestmark = pytest.mark.peers


def packages() -> list[Any]:
    return [tc, pytest.importorskip("torch")]


def test_attributes_are_copied_and_memory_is_not() -> None:
    for t in packages():
        base = t.arange(6.0, requires_grad=True)
        view = base[2:4]
        view.meta = "x"
        other = t.zeros(3)
        other.left = 1
        other.__dict__ = view.__dict__
        assert other.meta == "x" and not hasattr(other, "left")
        assert not other._is_view() and view._is_view()
        other.add_(1)
        assert other[1:].tolist() == [1.0, 1.0] and view.tolist() == [2.0, 3.0]


def test_a_view_remains_a_view_when_its_attributes_are_replaced() -> None:
    for t in packages():
        base = t.zeros(4)
        view = base[1:]
        view.__dict__ = {"name_of_it": "v"}
        view[0] = 5
        assert base.tolist() == [0, 5, 0, 0] and view._base is base and view.name_of_it == "v"
        view.__dict__ = dict(vars(t.zeros(2)))
        assert view._is_view() and not hasattr(view, "name_of_it")


def test_attributes_are_a_dict() -> None:
    for t in packages():
        x = t.zeros(2)
        with pytest.raises(TypeError, match="__dict__ must be set to a dictionary, not a 'list'"):
            x.__dict__ = []
        x.__dict__["a"] = 1
        x.__dict__.update(b=2)
        assert (x.a, x.b) == (1, 2)


def test_attributes_of_subclasses() -> None:
    for t in packages():
        kind = type("Kind", (t.Tensor,), {})
        x = t.ones(3).as_subclass(kind)
        x.tag = 1
        y = (x * 2)[1:]
        y.__dict__ = x.__dict__
        assert y.tag == 1 and y.tolist() == [2.0, 2.0] and type(y.view(-1)) is kind


def test_copies_keep_attributes_with_an_underscore() -> None:
    for t in packages():
        x = t.arange(4.0)[1:]
        x._meta, x.tags = {"a": [1]}, [2]
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert (made._meta, made.tags) == ({"a": [1]}, [2]) and made.tolist() == [1, 2, 3]
            made._meta["a"].append(3)
        assert x._meta == {"a": [1]}
