"""``__torch_function__``: subclasses, foreign objects, modes; the same programs as in PyTorch where it is here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tracecomp
from tracecomp import overrides


@pytest.fixture(params=["tracecomp", pytest.param("torch", marks=pytest.mark.peers)])
def torch(request: Any) -> Any:
    return tracecomp if request.param == "tracecomp" else pytest.importorskip("torch")


def foreign() -> Any:
    class Foreign:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return SimpleNamespace(name=func.__name__, types=types, args=args, kwargs=kwargs)

    return Foreign()


def test_results_are_of_the_subclass(torch: Any) -> None:
    class Marked(torch.Tensor):
        pass

    x = Marked([1.0, 2.0, 3.0])
    for y in (
        x + 1, 1 + x, x.exp(), torch.exp(x), x[0], x.view(3, 1), x.detach(), x.sum(), torch.stack([x, x]), x.clone(),
        x.double(), torch.nn.functional.relu(x), x.topk(2)[0], x > 1, -x, x @ x, x.add_(0), next(iter(x)), x.data,
    ):  # fmt: skip
        assert type(y) is Marked
    assert type(x.shape) is torch.Size and x.tolist() == [1.0, 2.0, 3.0] and repr(x) == "Marked([1., 2., 3.])"
    assert type(x.as_subclass(torch.Tensor)) is torch.Tensor
    assert type(torch.nn.Parameter(torch.ones(3)) * 1) is torch.Tensor
    assert type(torch.nn.Parameter(torch.ones(3)) * x) is Marked


def test_gradients_pass_through_subclasses(torch: Any) -> None:
    class Marked(torch.Tensor):
        pass

    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    (leaf.as_subclass(Marked) ** 2).sum().backward()
    assert leaf.grad.tolist() == [2.0, 4.0]


def test_foreign_objects_are_asked_wherever_they_stand(torch: Any) -> None:
    x, t = foreign(), torch.ones(2)
    calls = {
        "add": torch.add(t, x), "matmul": torch.matmul(x, t), "cat": torch.cat([t, x]), "sum": torch.sum(x, dim=0),
        "linear": torch.nn.functional.linear(x, t), "where": torch.where(t > 0, x, t), "mul": torch.mul(t, other=x),
    }  # fmt: skip
    for name, found in calls.items():
        assert found.name == name and found.types == (type(x),)
    assert (t + x).args == (t, x) and calls["mul"].kwargs == {"other": x}


def test_subclasses_are_asked_before_their_bases_and_may_pass(torch: Any) -> None:
    asked: list[str] = []

    def asking(name: str, base: Any, answer: Any) -> Any:
        def ask(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(name)
            return answer

        return type(name, (base,), {"__torch_function__": classmethod(ask)})

    first = asking("First", object, NotImplemented)
    second = asking("Second", first, "answer")
    assert torch.add(first(), second()) == "answer" and asked == ["Second"]
    asked.clear()
    other = asking("Other", object, "other")
    assert torch.add(first(), other()) == "other" and asked == ["First", "Other"]
    with pytest.raises(TypeError, match="NotImplemented"):
        torch.add(first(), first())


def test_methods_and_properties_of_a_subclass_ask_it(torch: Any) -> None:
    seen: list[str] = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2, 3).as_subclass(Watching)
    x.size(0), x.numel(), x.dim(), len(x), x.exp(), x[0]
    assert seen == ["size", "numel", "dim", "__len__", "exp", "__getitem__"]
    seen.clear()
    assert x.shape == (2, 3) and x.dtype is torch.float32 and seen == ["__get__", "__get__"]


def test_modes_see_every_call_and_end(torch: Any) -> None:
    from_module = overrides if torch is tracecomp else torch.overrides
    names: list[str] = []

    class Watch(from_module.TorchFunctionMode):  # type: ignore[name-defined]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.ones(3).exp().add(1)
        with Watch():
            torch.zeros(1)
    torch.ones(3)
    assert names == ["ones", "exp", "add", "zeros", "zeros"]


def test_has_torch_function_tells_who_would_be_asked(torch: Any) -> None:
    from_module = overrides if torch is tracecomp else torch.overrides

    class Marked(torch.Tensor):
        pass

    x, plain = Marked([1.0]), torch.ones(1)
    assert not from_module.has_torch_function((plain, 3, torch.nn.Parameter(plain)))
    assert from_module.has_torch_function((plain, x)) and from_module.has_torch_function((foreign(),))
    with torch._C.DisableTorchFunctionSubclass():
        assert not from_module.has_torch_function((x,)) and type(x + 1) is torch.Tensor
    assert from_module.is_tensor_like(foreign()) and not from_module.is_tensor_like(3)


def test_functions_of_users_can_be_overridden_too() -> None:
    def mine(x: Any, factor: int = 2) -> Any:
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(mine, (x,), x, factor=factor)
        return x * factor

    assert mine(tracecomp.ones(1)).tolist() == [2.0] and mine(foreign(), 3).kwargs == {"factor": 3}
    plain: Any = lambda x: "plain"  # noqa: E731
    wrapped = overrides.wrap_torch_function(lambda x: (x,))(plain)
    assert wrapped(tracecomp.ones(1)) == "plain" and wrapped(foreign()).types
