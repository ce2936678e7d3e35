"""Module against PyTorch's: registration, trees, state dicts, hooks, modes, text, errors with their words."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp import nn

torch = pytest.importorskip("torch")
BOTH = (tracecomp, torch)


def outcome(run: Callable[[Any], Any], library: ModuleType) -> Any:
    """Return the result of ``run(library)``, or the type and text of its error."""
    try:
        result = run(library)
    except Exception as error:
        return type(error).__name__, str(error).replace("tracecomp.nn.parameter.", "torch.nn.parameter.")
    return result


def both(run: Callable[[Any], Any]) -> Any:
    ours, theirs = (outcome(run, library) for library in BOTH)
    assert ours == theirs
    return ours


def network(library: Any) -> Any:
    class Net(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = library.nn.Linear(3, 4)
            self.body = library.nn.ModuleList([library.nn.Linear(4, 4), library.nn.BatchNorm1d(4)])
            self.shared = self.first
            self.register_buffer("count", library.zeros(1))
            self.register_buffer("scratch", library.zeros(2), persistent=False)
            self.register_parameter("absent", None)
            self.scale = library.nn.Parameter(library.ones(4))

        def forward(self, x: Any) -> Any:
            return self.body[1](self.body[0](self.first(x))) * self.scale

    return Net()


TREE = {
    "parameters": lambda m: [n for n, _ in m.named_parameters()],
    "with duplicates": lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
    "own parameters": lambda m: [n for n, _ in m.named_parameters(prefix="p", recurse=False)],
    "buffers": lambda m: [n for n, _ in m.named_buffers()],
    "modules": lambda m: [(n, type(c).__name__) for n, c in m.named_modules()],
    "children": lambda m: [n for n, _ in m.named_children()],
    "state": lambda m: list(m.state_dict()),
    "prefixed state": lambda m: list(m.state_dict(prefix="x.")),
    "metadata": lambda m: m.state_dict()._metadata,
    "text": repr,
    "counts": lambda m: (sum(p.numel() for p in m.parameters()), len(list(m.modules())), len(list(m.buffers()))),
    "path": lambda m: type(m.get_submodule("body.1")).__name__,
    "parameter": lambda m: tuple(m.get_parameter("body.0.weight").shape),
    "buffer": lambda m: tuple(m.get_buffer("body.1.running_mean").shape),
    "names": lambda m: [n for n in ("first", "count", "scale", "absent", "nothing") if hasattr(m, n)],
    "modes": lambda m: [c.training for c in m.eval().modules()] + [c.training for c in m.train().modules()],
    "applied": lambda m: (lambda seen: (m.apply(lambda c: seen.append(type(c).__name__)), seen)[1])([]),  # type: ignore[arg-type]
    "frozen": lambda m: [p.requires_grad for p in m.requires_grad_(False).parameters()],
    "double": lambda m: [str(t.dtype) for t in m.double().state_dict().values()],
    "half and back": lambda m: [str(t.dtype) for t in m.half().float().state_dict().values()],
}


@pytest.mark.parametrize("question", TREE)
def test_tree(question: str) -> None:
    both(lambda library: TREE[question](network(library)))


WRONG: dict[str, Callable[[Any], Any]] = {
    "tensor for a parameter": lambda t: setattr(network(t), "scale", t.ones(4)),
    "number for a module": lambda t: setattr(network(t), "first", 3),
    "number for a buffer": lambda t: setattr(network(t), "count", 3),
    "unknown attribute": lambda t: t.nn.Linear(1, 1).nothing,
    "no forward": lambda t: t.nn.Module()(1),
    "dotted parameter": lambda t: network(t).register_parameter("a.b", None),
    "empty parameter": lambda t: network(t).register_parameter("", None),
    "taken parameter": lambda t: network(t).register_parameter("first", None),
    "tensor registered": lambda t: network(t).register_parameter("new", t.ones(1)),
    "dotted buffer": lambda t: network(t).register_buffer("a.b", None),
    "taken buffer": lambda t: network(t).register_buffer("scale", t.ones(1)),
    "number registered": lambda t: network(t).register_buffer("new", 1),
    "number added": lambda t: network(t).add_module("new", 1),
    "dotted module": lambda t: network(t).add_module("a.b", None),
    "no submodule": lambda t: network(t).get_submodule("body.7"),
    "no module": lambda t: network(t).get_submodule("scale"),
    "no parameter": lambda t: network(t).get_parameter("count"),
    "mode": lambda t: network(t).train(1),
    "to integers": lambda t: network(t).to(t.int64),
    "missing key": lambda t: network(t).load_state_dict(OrderedDict(list(network(t).state_dict().items())[1:])),
    "unexpected key": lambda t: network(t).load_state_dict({**network(t).state_dict(), "zz": t.ones(1), "first.q": 1}),
    "shape": lambda t: network(t).load_state_dict({**network(t).state_dict(), "scale": t.ones(5)}),
    "everything": lambda t: network(t).load_state_dict({"scale": t.ones(5), "zz": t.ones(1)}),
    "no tensor": lambda t: network(t).load_state_dict({**network(t).state_dict(), "count": 3.0}),
    "no mapping": lambda t: network(t).load_state_dict([1]),
    "not strict": lambda t: str(network(t).load_state_dict({"zz": t.ones(1)}, strict=False)),
    "matched": lambda t: str(network(t).load_state_dict(network(t).state_dict())),
    "index": lambda t: t.nn.ModuleList([t.nn.ReLU()])[3],
    "sequence index": lambda t: t.nn.Sequential(t.nn.ReLU())[2],
    "linear shapes": lambda t: t.nn.Linear(3, 2)(t.ones(2, 4)).shape,
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_errors_are_those_of_torch(mistake: str) -> None:
    if mistake == "linear shapes":
        assert [outcome(WRONG[mistake], library)[0] for library in BOTH] == ["RuntimeError"] * 2
    else:
        both(WRONG[mistake])


def test_assignment_before_init_is_an_error() -> None:
    def run(library: Any, value: Callable[[Any], Any]) -> Any:
        class Net(library.nn.Module):
            def __init__(self) -> None:
                self.part = value(library)

        return Net()

    both(lambda t: run(t, lambda t: t.nn.Linear(1, 1)))
    both(lambda t: run(t, lambda t: t.nn.Parameter(t.ones(1))))


def test_replacing_and_deleting_attributes() -> None:
    def run(library: Any) -> Any:
        net = network(library)
        net.first = library.nn.ReLU()
        net.scale = None
        del net.body
        net.extra = library.nn.Parameter(library.ones(2))
        net.plain = library.ones(2)
        return list(net.state_dict()), repr(net), net.scale

    both(run)


def test_assign_and_extra_state() -> None:
    def run(library: Any) -> Any:
        class Counter(library.nn.Linear):
            calls = 0

            def get_extra_state(self) -> Any:
                return {"calls": self.calls}

            def set_extra_state(self, state: Any) -> None:
                self.calls = state["calls"]

        one, two = Counter(2, 2), Counter(2, 2)
        one.calls = 5
        state = one.state_dict()
        two.load_state_dict(state, assign=True)
        same = two.weight.data_ptr() == one.weight.data_ptr()
        return list(state), two.calls, same, isinstance(two.weight, library.nn.Parameter)

    both(run)


def test_hooks_run_in_torchs_order_and_may_replace_values() -> None:
    def run(library: Any) -> Any:
        seen: list[Any] = []
        layer = library.nn.Linear(2, 2, bias=False)
        with library.no_grad():
            layer.weight.fill_(1.0)
        layer.register_forward_pre_hook(lambda m, args: seen.append("pre") or (args[0] * 2,))
        layer.register_forward_pre_hook(lambda m, args: seen.append("earlier"), prepend=True)
        layer.register_forward_hook(lambda m, args, out: seen.append(("post", args[0].tolist())) or out + 1)
        layer.register_forward_hook(lambda m, a, k, out: seen.append(("kw", k)), with_kwargs=True)
        layer.register_full_backward_pre_hook(lambda m, g: seen.append(("back", g[0].tolist())))
        layer.register_full_backward_hook(
            lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())) or (gi[0] * 3,)
        )
        x = library.ones(1, 2, requires_grad=True)
        out = layer(x)
        out.sum().backward()
        return seen, out.tolist(), x.grad.tolist(), layer.weight.grad.tolist()

    both(run)


def test_removed_hooks_and_global_hooks() -> None:
    def run(library: Any) -> Any:
        seen: list[str] = []
        layer = library.nn.ReLU()
        handle = layer.register_forward_hook(lambda *a: seen.append("own"))
        module = nn.hooks if library is tracecomp else torch.nn.modules.module
        general = module.register_module_forward_hook(lambda *a: seen.append("all"))
        layer(library.ones(1))
        handle.remove()
        layer(library.ones(1))
        general.remove()
        layer(library.ones(1))
        return seen

    assert both(run) == ["all", "own", "all"]


def test_always_called_hooks_see_failures() -> None:
    def run(library: Any) -> Any:
        seen: list[str] = []
        layer = library.nn.Linear(2, 2)
        layer.register_forward_hook(lambda *a: seen.append("never"))
        layer.register_forward_hook(lambda *a: seen.append("always"), always_call=True)
        with pytest.raises(RuntimeError):
            layer(library.ones(1, 3))
        return seen

    assert both(run) == ["always"]


def test_state_dict_hooks() -> None:
    def run(library: Any) -> Any:
        seen: list[Any] = []
        layer = library.nn.Linear(2, 2)
        layer.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("save", prefix, keep)))
        layer.register_state_dict_post_hook(lambda m, s, prefix, meta: s.update(extra=1))
        layer.register_load_state_dict_pre_hook(lambda m, s, *rest: s.pop("extra"))
        layer.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
        state = layer.state_dict()
        return list(state), str(layer.load_state_dict(state)), seen

    both(run)


def test_containers() -> None:
    def run(library: Any) -> Any:
        n = library.nn
        s = n.Sequential(n.Linear(2, 2), n.ReLU(), n.Tanh())
        s.append(n.Sigmoid()).insert(1, n.Identity())
        del s[2]
        named = n.Sequential(OrderedDict(a=n.ReLU(), b=n.Tanh()))
        modules = n.ModuleList([n.ReLU()])
        modules += [n.Tanh()]
        modules.insert(0, n.Identity())
        modules.extend([n.ReLU(), n.ReLU()])
        table = n.ModuleDict({"a": n.ReLU()})
        table["b"] = n.Tanh()
        table.update([("c", n.Identity())])
        gone = table.pop("a")
        numbers = n.ParameterList([library.ones(2), n.Parameter(library.zeros(1))])
        numbers.append(3)
        words = n.ParameterDict({"x": library.ones(2)})
        words["y"] = n.Parameter(library.ones(1, 2))
        texts = [repr(v) for v in (s, s[1:], named, named.a, modules, modules[1:3], table, gone, numbers, words)]
        return texts, len(s), len(modules), list(table), list(words), len(list(numbers.parameters())), "x" in words

    both(run)


def test_copies_and_pickles_are_independent() -> None:
    net = network(tracecomp)
    twin = copy.deepcopy(net)
    with tracecomp.no_grad():
        twin.first.weight.fill_(3.0)
    assert net.first.weight[0, 0].item() != 3.0 and twin.shared is twin.first
    again = pickle.loads(pickle.dumps(net.body))
    assert all(
        np.array_equal(a, b) for a, b in zip(again.state_dict().values(), net.body.state_dict().values(), strict=True)
    )
    assert isinstance(again[0].weight, nn.Parameter)


def test_zero_grad() -> None:
    def run(library: Any) -> Any:
        layer = library.nn.Linear(2, 1)
        layer(library.ones(1, 2)).sum().backward()
        layer.zero_grad(set_to_none=False)
        zeros = layer.weight.grad.tolist()
        layer.zero_grad()
        return zeros, layer.weight.grad

    assert both(run) == ([[0.0, 0.0]], None)


LAZY = [
    ("LazyLinear", (3,), (2, 4)), ("LazyConv1d", (3, 2), (2, 4, 5)), ("LazyConv2d", (3, 2), (4, 5, 6)),
    ("LazyConvTranspose2d", (3, 2), (1, 4, 5, 6)), ("LazyBatchNorm1d", (), (3, 4)),
    ("LazyBatchNorm2d", (), (2, 4, 3, 3)), ("LazyInstanceNorm1d", (), (2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "shape"), LAZY)
def test_lazy_layers_learn_their_sizes(name: str, args: tuple[int, ...], shape: tuple[int, ...]) -> None:
    def run(library: Any) -> Any:
        layer = getattr(library.nn, name)(*args)
        before = repr(layer), layer.has_uninitialized_params()
        out = layer(library.ones(shape))
        return (
            before,
            type(layer).__name__,
            tuple(out.shape),
            {k: tuple(v.shape) for k, v in layer.state_dict().items()},
        )

    both(run)


def test_lazy_layers_load() -> None:
    full = nn.Linear(4, 3)
    lazy = nn.LazyLinear(3)
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        _ = lazy.weight.shape
    lazy.load_state_dict(full.state_dict())
    assert np.array_equal(lazy(tracecomp.ones(1, 4)).detach(), full(tracecomp.ones(1, 4)).detach())


def test_training_flags_and_attributes_record_again() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    call = tracecomp.compile(net)
    x = tracecomp.ones(4, 3)
    call(x), call(x)
    net.eval()
    assert np.array_equal(call(x).detach(), net(x).detach()) and len(call.graphs) == 2
    net.train()
    call(x)
    assert len(call.graphs) == 2


def test_scopes_are_module_paths() -> None:
    net = network(tracecomp)
    graph = tracecomp.trace(net, tracecomp.ones(2, 3))
    scopes = {"/".join(o.scope) for o in graph.origin.values()}
    assert "Net/first/linear" in scopes and "Net/body.1/batch_norm" in scopes


def test_a_module_compiled_in_place_keeps_its_results_and_copies_without_its_recordings() -> None:
    net = network(tracecomp)
    x = tracecomp.ones(2, 3)
    expected = net.eval()(x).detach().numpy()
    net.compile()
    for _ in range(3):
        np.testing.assert_allclose(net(x).detach().numpy(), expected, rtol=1e-5)
    assert len(net._compiled_call_impl.graphs) == 1
    assert copy.deepcopy(net)._compiled_call_impl is None


def test_parameters_are_named_when_others_take_the_places_of_those_before() -> None:
    """One that is gone leaves its identity to the next that is made, which is named all the same."""

    def named(library: Any) -> list[str]:
        net = library.nn.Sequential(*[library.nn.Linear(1, 1, bias=False) for _ in range(20)])
        names = []
        for n, (name, param) in enumerate(net.named_parameters()):
            names.append(name)
            del param
            if n + 1 < len(net):
                net[n].weight = None
                net[n + 1].weight = library.nn.Parameter(library.ones(1, 1))
        return names

    assert len(both(named)) == 20
