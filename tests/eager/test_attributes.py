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


def ways_to_state(t: Any) -> list[Any]:
    """Tensors with history, hooks, views, gradients and replaced memory."""
    leaf = t.ones(2, requires_grad=True)
    leaf.register_hook(lambda g: g)
    leaf.register_post_accumulate_grad_hook(lambda x: None)
    (leaf * 2).sum().backward()
    reshaped = t.ones(2, 3)
    reshaped.t_()
    replaced = t.ones(2)
    replaced.data = t.ones(5)
    inner = t.ones(4, requires_grad=True) * 1
    inner.retain_grad()
    inner[1:].mul_(2)
    inner.sum().backward()
    with t.inference_mode():
        inference = t.ones(2)[1:]
    parameter = t.nn.Parameter(t.ones(2))
    return [leaf, reshaped, replaced, inner, inference, parameter, leaf[1:], leaf.detach(), t.ones(2, device="meta")]


def test_attributes_are_only_the_programs() -> None:
    for t in packages():
        for x in ways_to_state(t):
            assert x.__dict__ == {} and not x.__dict__ and vars(x) == {}
            x.tag = 1
            assert x.__dict__ == vars(x) == {"tag": 1}


def test_attributes_of_a_view_are_a_live_dict() -> None:
    for t in packages():
        x = t.arange(4.0, requires_grad=True)[1:]
        x.a = 1
        own = x.__dict__
        x.b = 2
        assert isinstance(own, dict) and own == {"a": 1, "b": 2} and {**own} == dict(own) == {"a": 1, "b": 2}
        assert own | {"c": 3} == {"a": 1, "b": 2, "c": 3} and {"a": 0} | own == {"a": 1, "b": 2}
        assert list(own) == ["a", "b"] and [*reversed(own)] == ["b", "a"] and len(own) == 2 and "_base" not in own
        assert repr(own) == "{'a': 1, 'b': 2}" and own.copy() == own and own != {"a": 1}
        for made in (copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            assert type(made) is dict and made == own
        assert own.pop("a") == 1 and own.setdefault("c", 3) == 3 and not hasattr(x, "a")
        own |= {"d": 4}
        del own["b"]
        assert (x.c, x.d) == (3, 4) and own == {"c": 3, "d": 4}
        own.clear()
        assert x.__dict__ == {} and x._base is not None and x.grad_fn is not None
        with pytest.raises(KeyError):
            own["_base"]
        with pytest.raises(KeyError):
            del own["_base"]


def test_attributes_of_a_view_do_not_make_another_tensor_a_view() -> None:
    base = tc.arange(4.0)
    view, other = base[1:], tc.zeros(3)
    other.__dict__.update(vars(view))
    other.__dict__["_base"] = base
    assert other._base is None
    other.add_(1)
    assert base.tolist() == [0, 1, 2, 3]


class Described:
    """A base class with a separate ``__dict__``."""

    def describe(self, text: str) -> Any:
        self.text = text
        return self


def test_attributes_after_a_base_class_of_python() -> None:
    for t in packages():
        kind = type("Kind", (Described, t.Tensor), {})
        for cls in (kind, type("Below", (kind,), {}), type("Again", (type("Mixed", (), {}), kind), {})):
            x = t.arange(4.0)[1:].as_subclass(cls).describe("three")
            assert x.__dict__ == {"text": "three"}
            y = t.zeros(3).as_subclass(cls)
            y.__dict__ = copy.deepcopy(x.__dict__)
            assert y.text == "three" and y.tolist() == [0, 0, 0] and pickle.loads(pickle.dumps(vars(x))) == vars(x)
