"""A compiled module is a module: parameters, state, modes, hooks, containers, copies; ``Module.compile``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.nn.optimized_module import OptimizedModule


class Scaled(nn.Module):
    """A linear layer times a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale

    def twice(self, x: Any) -> Any:
        return self(self(x)[:, :1].expand(-1, 3))


def pair() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    module = Scaled()
    return module, torch.compile(module), torch.randn(4, 3)


def test_it_is_a_module_with_the_parameters_under_the_prefix() -> None:
    module, compiled, x = pair()
    assert isinstance(compiled, nn.Module) and isinstance(compiled, OptimizedModule)
    assert compiled._orig_mod is module
    assert list(compiled.state_dict()) == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert [p is q for p, q in zip(compiled.parameters(), module.parameters(), strict=True)] == [True, True]
    for _ in range(3):
        assert torch.equal(compiled(x), module(x))
    twin = torch.compile(Scaled())
    twin.load_state_dict(compiled.state_dict())
    assert torch.equal(twin(x), module(x))


def test_a_compiled_part_of_a_model_is_trained() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    twin = copy.deepcopy(plain)
    parts = nn.Sequential(torch.compile(twin[0]), twin[1], torch.compile(twin[2]))
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    for model in (plain, parts):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert sum(p.numel() for p in parts.parameters()) == 21
    assert torch.allclose(plain(x), parts(x), atol=1e-6)


def test_attributes_and_modes_are_those_of_the_original() -> None:
    module, compiled, x = pair()
    compiled(x)
    compiled.scale = 5.0
    assert module.scale == 5.0 and torch.equal(compiled(x), module.linear(x) * 5.0)
    assert compiled.linear is module.linear and torch.equal(compiled.twice(x), module.twice(x))
    compiled.eval()
    assert not module.training and not module.linear.training and not compiled.training
    compiled.train()
    assert module.training and compiled.training
    del compiled.scale
    with pytest.raises(AttributeError):
        module.scale  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        compiled.nothing  # noqa: B018


def test_conversions_return_the_compiled_module() -> None:
    module, compiled, x = pair()
    compiled(x)
    assert compiled.double() is compiled and module.linear.weight.dtype is torch.float64
    assert compiled.to(torch.float64) is compiled and compiled.requires_grad_(False) is compiled
    assert compiled.apply(lambda m: None) is compiled
    assert torch.equal(compiled(x.double()), module(x.double()))


def test_hooks_of_both_modules_run() -> None:
    module, compiled, x = pair()
    expected = module(x)
    seen: list[str] = []
    inner = module.register_forward_hook(lambda m, args, out: out + 1)
    assert torch.equal(compiled(x), expected + 1)
    compiled.register_forward_pre_hook(lambda m, args: seen.append("before"))
    outer = compiled.register_forward_hook(lambda m, args, out: (seen.append("after"), out * 2)[1])
    for _ in range(3):
        assert torch.equal(compiled(x), (expected + 1) * 2)
    assert seen == ["before", "after"] * 3
    outer.remove()
    inner.remove()
    grads: list[Any] = []
    compiled.register_full_backward_hook(lambda m, grad_in, grad_out: grads.append(grad_out[0]))
    compiled(x.requires_grad_()).sum().backward()
    assert len(grads) == 1 and grads[0].tolist() == [[1.0, 1.0]] * 4


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_are_compiled_modules_with_parameters_of_their_own(twin_of: Any) -> None:
    module, compiled, x = pair()
    compiled(x)
    twin = twin_of(compiled)
    assert isinstance(twin, OptimizedModule) and twin._orig_mod is not module
    assert torch.equal(twin(x), compiled(x))
    with torch.no_grad():
        twin.linear.weight.zero_()
    assert not torch.equal(twin(x), compiled(x)) and torch.equal(compiled(x), module(x))


def test_what_compiled_functions_offer_is_offered() -> None:
    _, compiled, x = pair()
    compiled(x), compiled(x)
    assert len(compiled.graphs) == 1 and "recordings 1" in compiled.explain().text(everything=True)
    compiled.reset()
    assert compiled.graphs == []


def test_text_length_items_and_names() -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert repr(compiled).startswith("OptimizedModule(\n  (_orig_mod): Sequential(")
    assert len(compiled) == 2 and isinstance(compiled[1], nn.ReLU)
    with pytest.raises(TypeError, match="Linear does not support len"):
        len(torch.compile(nn.Linear(1, 1)))
    assert "in_features" in dir(torch.compile(nn.Linear(1, 1)))


def test_module_compile_compiles_in_place() -> None:
    module, _, x = pair()
    expected = module(x)
    module.compile(backend="native")
    for _ in range(3):
        assert torch.equal(module(x), expected)
    assert list(module.state_dict()) == ["linear.weight", "linear.bias"]
    assert torch.equal(copy.deepcopy(module)(x), expected)


def test_options_are_those_of_torch() -> None:
    module, _, x = pair()
    for options in ({"backend": "eager"}, {"backend": "aot_eager"}, {"mode": "max-autotune"}, {"disable": True}):
        assert torch.equal(torch.compile(module, **options)(x), module(x))
    for bad, error in (({"mode": "fastest"}, RuntimeError), ({"mode": "default", "options": {}}, RuntimeError),
                       ({"backend": "nothing"}, ValueError)):  # fmt: skip
        with pytest.raises(error):
            torch.compile(module, **bad)

    @torch.compile(backend="inductor", mode="reduce-overhead")
    def f(x: Any) -> Any:
        return x + 1

    assert f(x).tolist() == (x + 1).tolist()


def test_a_module_compiled_in_place_takes_the_names_of_compile() -> None:
    module, x = Scaled(), torch.ones(1, 3)
    wanted = module(x)
    module.compile(backend="eager", mode="reduce-overhead", fullgraph=True)
    assert torch.equal(module(x), wanted)
    with pytest.raises(RuntimeError, match="Unrecognized mode=fastest"):
        module.compile(mode="fastest")


def test_disabled_it_is_the_module() -> None:
    module = Scaled()
    assert torch.compile(module, disable=True) is module


def test_it_is_iterated_as_the_module() -> None:
    layers = nn.Sequential(nn.ReLU(), nn.Tanh())
    compiled = torch.compile(layers)
    assert [*compiled] == [*layers] and layers[0] in compiled
    with pytest.raises(TypeError, match="'Scaled' object is not iterable"):
        iter(torch.compile(Scaled()))


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(AssertionError, match="A callable function is expected, but <class 'int'> is provided"):
        torch.compile(5)


def test_what_cannot_be_captured_is_caught_by_its_name_in_pytorch() -> None:
    refused = torch.compile(lambda x: torch._dynamo.graph_break() or x, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        refused(torch.ones(1))


class Repeating(nn.Module):
    """A module whose methods call it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.linear(x).tanh()

    @torch.no_grad()
    def generate(self, x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = self(x)
        return x

    def fail(self, x: Any) -> Any:
        self(x)
        raise ValueError("after a call")


def test_methods_of_the_module_call_the_compiled_module() -> None:
    torch.manual_seed(0)
    module, x = Repeating(), torch.randn(2, 3)
    wanted = module.generate(x, 6)
    compiled = torch.compile(module)
    assert torch.equal(compiled.generate(x, steps=6), wanted)
    (entry,) = compiled._compiled.entries
    assert entry.calls() == 5
    with pytest.raises(ValueError, match="after a call"):
        compiled.fail(x)
    assert "_compiled_call_impl" not in vars(module)
    served = entry.calls()
    assert torch.equal(module.generate(x, 6), wanted) and entry.calls() == served
    assert compiled.generate.__name__ == "generate" and compiled.forward(x).shape == (2, 3)
