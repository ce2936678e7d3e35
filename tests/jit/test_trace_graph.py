"""``_get_trace_graph``: nodes, shapes and operands are those that PyTorch traces."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp
from tracecomp import jit


def network(library: Any) -> Any:
    nn = library.nn

    class Small(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y = library.relu(self.norm(self.conv(x)))
            y = nn.functional.max_pool2d(y + self.conv(x), 2).mean((2, 3))
            return library.softmax(self.head(y), -1)

    return Small().eval()


def embedding(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.GELU(), nn.Flatten())


def described(library: Any, make: Any, *shape: int) -> list[Any]:
    x = library.ones(*shape) if make is network else library.ones(*shape, dtype=library.int64)
    graph, out = library.jit._get_trace_graph(make(library), (x,))
    assert [v.type().sizes() for v in graph.outputs()] == [list(out.shape)]
    nodes = [n for n in graph.nodes() if not n.kind().startswith("prim::")]
    return [
        [
            n.kind(),
            *([v.type().sizes() for v in values if v.isCompleteTensor()] for values in (n.inputs(), n.outputs())),
        ]
        for n in nodes
    ]


def test_graphs_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert described(tracecomp, network, 1, 3, 8, 8) == described(torch, network, 1, 3, 8, 8)
    assert described(tracecomp, embedding, 1, 2) == described(torch, embedding, 1, 2)


def test_a_printed_graph_has_inputs_state_and_results() -> None:
    x = tracecomp.ones(2, 3)
    graph, out, given = jit._get_trace_graph(tracecomp.nn.Linear(3, 2), (x,), return_inputs=True)
    assert given == (x,) and out.shape == (2, 2)
    assert [v.debugName() for v in graph.inputs()] == ["0", "1", "2"]
    assert str(graph) == (
        "graph(%0 : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu),\n"
        "      %1 : Float(2, 3, strides=[3, 1], requires_grad=1, device=cpu),\n"
        "      %2 : Float(2, strides=[1], requires_grad=1, device=cpu)):\n"
        "  %3 : Float(2, 2, strides=[2, 1], requires_grad=1, device=cpu) = aten::linear(%0, %1, %2)\n"
        "  return (%3)\n"
    )


def test_constants_lists_and_scopes() -> None:
    def scoped(x: Any) -> Any:
        tracecomp._C._get_tracing_state().push_scope("inner")
        y = tracecomp.cat([x, x * 2], dim=1)
        tracecomp._C._get_tracing_state().pop_scope()
        return y.sum()

    assert tracecomp._C._get_tracing_state() is None
    graph, _ = jit._get_trace_graph(scoped, tracecomp.ones(2, 3))
    nodes = list(graph.nodes())
    kinds = [(n.kind(), n.scopeName()) for n in nodes]
    assert (
        ("aten::cat", "inner") in kinds and ("prim::ListConstruct", "inner") in kinds and kinds[-1] == ("aten::sum", "")
    )
    constants = {v.toIValue(): v.type().kind() for n in nodes if n.kind() == "prim::Constant" for v in n.outputs()}
    assert constants[2] == "IntType" and constants[1] == "IntType"
    assert all(v.toIValue() is None for n in nodes if n.kind() == "aten::cat" for v in n.outputs())


def test_only_modules_and_functions_are_traced() -> None:
    with pytest.raises(RuntimeError, match="f must be a module or a function, not int"):
        jit._get_trace_graph(3, (tracecomp.ones(1),))
