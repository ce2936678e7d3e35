"""fx: tracing, rewriting and code generation produce PyTorch's code, and it computes the same."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp
from tracecomp import fx, nn

reference = pytest.importorskip("torch")
BOTH = (tracecomp, reference)


def model(torch: Any) -> Any:
    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):  # type: ignore[no-untyped-def]
            return x * self.scale

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = torch.nn.Linear(4, 4)
            self.part = torch.nn.Module()
            self.part.inner = Inner()
            self.seq = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 4))
            self.register_buffer("shift", torch.ones(4))
            self.unused = torch.nn.ReLU()

        def forward(self, x, k=2, *rest, flag=True, **kw):  # type: ignore[no-untyped-def]
            y = self.seq(self.part.inner(self.l1(x))).clamp(min=0.0)
            a, b = y.chunk(2, dim=1)
            z = y[..., 1:, None] * self.shift - k
            z += 1
            size = x.shape[0] + math.sqrt(x.size(1))
            return {"a": torch.cat([a, b], dim=-1), "z": (-(z**2), size, float("inf"))}

    return Model()


def small(torch: Any) -> Any:
    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = torch.nn.Linear(4, 4)
            self.l2 = torch.nn.Linear(4, 4)
            self.unused = torch.nn.ReLU()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.l2(torch.relu(self.l1(x))) + x

    return Small()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a module": model,
    "a small module": small,
    "signs": lambda t: lambda x, y: (1 - x, x @ y, x > y, ~(x == y), x % 2, -1 / x, 2**x, x // y),
    "methods": lambda t: lambda x: x.view(-1, 2).max(1)[0].to(t.float64, device=t.device("cpu")),
    "indices": lambda t: lambda x: x.permute(*[1, 0])[None, ::2, x.size(0) - 1, ...],
    "functions": lambda t: lambda x: t.sum(t.stack([x, x.T]), dim=[0, 1], keepdim=True),
    "a constant": lambda t: lambda x: x + t.ones(3),
    "nothing": lambda t: lambda x: None,
    "an argument": lambda t: lambda x: x,
    "names": lambda t: lambda input, max: (input.max, max.add(1), t.max(input), input.T),
    "a dictionary": lambda t: lambda x: {"out": [x + 1, (x,)], "n": slice(None, 3)},
    "unpacked": lambda t: lambda x: operator.add(*x.split(2)) if False else x.split(2)[1],
    "a sequence": lambda t: t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Sequential(t.nn.ReLU())),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_code_is_pytorchs(name: str) -> None:
    ours, theirs = (torch.fx.symbolic_trace(PROGRAMS[name](torch)) for torch in BOTH)
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    copied = copy.deepcopy(ours)
    assert copied.code == ours.code and copied.graph is not ours.graph


def edited(torch: Any) -> Any:
    """Calls inserted, replaced and erased."""
    traced = torch.fx.symbolic_trace(small(torch))
    graph = traced.graph
    for node in list(graph.nodes):
        if node.target is torch.relu:
            with graph.inserting_after(node):
                new = graph.call_function(torch.tanh, (node,))
            node.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)
        if node.target is operator.add:
            with graph.inserting_before(node):
                new = graph.call_method("mul", node.args, {})
            node.replace_all_uses_with(new)
            graph.erase_node(node)
    graph.lint()
    traced.recompile()
    return traced


def without_dead_code(torch: Any) -> Any:
    def program(x):  # type: ignore[no-untyped-def]
        x.sin()
        y = x + 1
        return x if y is None else x * 3

    traced = torch.fx.symbolic_trace(program)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def transformed(torch: Any) -> Any:
    class Other(torch.fx.Transformer):
        def call_function(self, target, args, kwargs):  # type: ignore[no-untyped-def]
            return super().call_function(torch.sigmoid if target is torch.relu else target, args, kwargs)

    return Other(torch.fx.symbolic_trace(small(torch))).transform()


def replaced(torch: Any) -> Any:
    def program(x, w):  # type: ignore[no-untyped-def]
        a, b = torch.cat([x, w]).sum(), torch.cat([w, x]).sum()
        return torch.max(a) + torch.max(b) + torch.cat([x, w])

    traced = torch.fx.symbolic_trace(program)
    found = torch.fx.replace_pattern(traced, lambda x, w: torch.cat([x, w]).sum(), lambda x, w: torch.stack([x, w]))
    assert len(found) == 2
    return traced


def built(torch: Any) -> Any:
    graph = torch.fx.Graph()
    x = graph.placeholder("x", default_value=3)
    y = graph.create_node("call_function", operator.add, (x, 3), {}, name="total")
    graph.output(graph.call_module("part.one", (y,)))
    return torch.fx.GraphModule({"part.one": torch.nn.ReLU()}, graph)


def without_leaves(torch: Any) -> Any:
    class Deep(torch.fx.Tracer):
        def is_leaf_module(self, m, name):  # type: ignore[no-untyped-def]
            return False

    root = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Identity())
    return torch.fx.GraphModule(root, Deep().trace(root))


EDITS = (edited, without_dead_code, transformed, replaced, built, without_leaves)


@pytest.mark.parametrize("edit", EDITS, ids=lambda f: f.__name__)
def test_changed_graphs_give_pytorchs_code(edit: Callable[[Any], Any]) -> None:
    ours, theirs = edit(tracecomp), edit(reference)
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)


def loop(torch: Any) -> Any:
    def program(x):  # type: ignore[no-untyped-def]
        return [y + 1 for y in x]

    return torch.fx.symbolic_trace(program)


def branch(torch: Any) -> Any:
    return torch.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)


def length(torch: Any) -> Any:
    return torch.fx.symbolic_trace(lambda x: len(x))


def used(torch: Any) -> Any:
    graph = torch.fx.symbolic_trace(small(torch)).graph
    graph.erase_node(next(iter(graph.nodes)))


def too_few(torch: Any) -> Any:
    return torch.fx.Interpreter(torch.fx.symbolic_trace(lambda x, y: x + y)).run(1)


def out_of_order(torch: Any) -> Any:
    graph = torch.fx.symbolic_trace(small(torch)).graph
    nodes = list(graph.nodes)
    nodes[1].prepend(nodes[2])
    graph.lint()


def frozen(torch: Any) -> Any:
    node = next(n for n in torch.fx.symbolic_trace(lambda x: torch.cat([x, x])).graph.nodes if n.op == "call_function")
    node.args[0].append(1)


@pytest.mark.parametrize("wrong", [loop, branch, length, used, too_few, out_of_order, frozen], ids=lambda f: f.__name__)
def test_what_cannot_be_a_graph_is_refused_as_in_pytorch(wrong: Callable[[Any], Any]) -> None:
    errors = []
    for torch in BOTH:
        with pytest.raises(Exception) as caught:
            wrong(torch)
        errors.append((type(caught.value).__name__, str(caught.value).split("\n")[0][:60]))
    assert errors[0] == errors[1]


def test_graph_modules_compute_what_was_traced() -> None:
    plain = small(tracecomp)
    traced = fx.symbolic_trace(plain)
    x = tracecomp.randn(3, 4)
    want = plain(x)
    loaded = pickle.loads(pickle.dumps(traced))
    for other in (traced, copy.deepcopy(traced), loaded, fx.Interpreter(traced).run, tracecomp.compile(traced)):
        assert tracecomp.equal(other(x), want)
    assert loaded.code == traced.code and "unused" not in dict(traced.named_modules())
    traced(x).sum().backward()
    assert plain.l1.weight.grad is not None  # the modules are the same ones


def test_generated_code_keeps_signs_and_writes() -> None:
    def program(x):  # type: ignore[no-untyped-def]
        x.mul_(2)
        return (-2) ** x

    traced = fx.symbolic_trace(program)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(tracecomp.ones(1)).item() == 4


def test_shapes_are_propagated() -> None:
    from_both = []
    for torch in BOTH:
        traced = torch.fx.symbolic_trace(small(torch))
        module = __import__(f"{torch.__name__}.fx.passes.shape_prop", fromlist=["ShapeProp"])
        module.ShapeProp(traced).propagate(torch.ones(3, 4))
        metas = [n.meta["tensor_meta"] for n in traced.graph.nodes]
        from_both.append([(tuple(m.shape), str(m.dtype), m.stride, m.requires_grad) for m in metas])
    assert from_both[0] == from_both[1]


def test_arguments_can_be_fixed() -> None:
    def program(x, twice=None):  # type: ignore[no-untyped-def]
        return x * 2 if twice else x

    traced = fx.symbolic_trace(program, concrete_args={"twice": True})
    assert traced(3, True) == 6
    with pytest.raises(AssertionError, match="twice has been specialized to have value True"):
        traced(3, False)


def test_submodules_are_added_and_removed() -> None:
    traced = fx.GraphModule(nn.Sequential(nn.ReLU()), fx.symbolic_trace(nn.Sequential(nn.ReLU())).graph)
    assert traced.add_submodule("a.b", nn.ReLU()) and isinstance(traced.a.b, nn.ReLU)
    traced.delete_all_unused_submodules()
    assert [n for n, _ in traced.named_modules()] == ["", "0"]
    assert traced.delete_submodule("0") and not traced.delete_submodule("0")


def test_arguments_of_a_node_may_be_given_as_a_list() -> None:
    graph_module = fx.symbolic_trace(lambda x: x.permute(0, 2, 1) + 1)
    node = next(n for n in graph_module.graph.nodes if n.target == "permute")
    node.args = [node.args[0], list(node.args[1:])]
    graph_module.graph.lint()
    graph_module.recompile()
    assert graph_module(tracecomp.ones(1, 2, 3)).shape == (1, 3, 2)
    with pytest.raises(AssertionError, match="a tuple and a dict"):
        node.args = 5


@pytest.mark.parametrize("torch", BOTH, ids=["tracecomp", "torch"])
def test_tracers_of_other_libraries_patch_what_they_follow(torch: Any) -> None:
    st = importlib.import_module(f"{torch.__name__}.fx._symbolic_trace")
    seen = []

    class Layer(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x * 2

    def call(module: Any, *args: Any) -> Any:
        seen.append(type(module).__name__)
        return st._orig_module_call(module, *args)

    own = vars(torch.nn.Module)["__call__"]
    space: dict[str, Any] = {"f": math.floor, "g": len}
    with st._Patcher() as patcher:
        patcher.patch_method(torch.nn.Module, "__call__", call, deduplicate=False)
        patcher.patch_method(Layer, "__repr__", lambda self: "patched")
        patcher.patch(space, "abs", lambda x: "shadowed")
        st._autowrap_check(patcher, space, {id(math.floor)})
        first, again = patcher.visit_once(seen), patcher.visit_once(seen)
        torch.nn.Sequential(Layer())(torch.ones(2))
        assert repr(Layer()) == "patched" and space["abs"](1) == "shadowed"
        assert space["f"] is not math.floor and space["f"](1.5) == 1 and space["g"] is len
    assert (first, again, seen) == (True, False, ["Sequential", "Layer"])
    assert vars(torch.nn.Module)["__call__"] is own and repr(Layer()) == "Layer()"
    assert space == {"f": math.floor, "g": len}
    assert st._find_proxy((1, {"a": [2]})) is None
    assert st.compatibility(is_backward_compatible=True)(call) is call and not isinstance(1, st.ScriptObject)
