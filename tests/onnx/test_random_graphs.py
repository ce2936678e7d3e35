"""Random graphs of many versions give what onnxruntime gives; ``python -m tests.fuzz.onnx_graphs`` tries many."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from tests.onnx.random_graphs import Graph, model_of, reads, run  # noqa: E402 - after what they need
from tests.onnx.random_nodes import graph_of  # noqa: E402
from tracecomp.onnx import load  # noqa: E402


def _tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value))


def _values(value: Any) -> list[Any]:
    return [v.detach().numpy() for v in value] if isinstance(value, list) else [value.detach().numpy()]


def _unlike(found: Any, wanted: Any) -> str | None:
    have, want = _values(found), wanted if isinstance(wanted, list) else [wanted]
    if len(have) != len(want):
        return f"{len(have)} tensors for {len(want)}"
    for a, b in zip(have, want, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
        scale = float(np.max(np.abs(b), initial=1.0)) if b.dtype.kind == "f" else 1.0
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
            return f"{a.ravel()[:6]} for {b.ravel()[:6]}"
    return None


def wrong(g: Graph, nodes: list[Any]) -> tuple[str, Any] | None:
    """The first value of these nodes that is not the one that onnxruntime gave, and the node that gives it."""
    outputs = [o for node in nodes for o in node.output if not isinstance(g.known[o], list)]
    made = {o for node in nodes for o in node.output}
    given = [n for n in dict.fromkeys(r for node in nodes for r in reads(node)) if n not in made]
    model = model_of(nodes, g.known, given, g.leaves, outputs, g.version)
    try:
        if any(_differ(a, g.known[n]) for a, n in zip(run(model, g.known), outputs, strict=True)):
            return None  # onnxruntime itself gives something else for the whole graph
    except Exception:  # its errors have no common class
        return None
    inputs = [i.name for i in model.graph.input if i.name not in {w.name for w in model.graph.initializer}]
    try:
        found = load(model)(*[_tensor(g.known[n]) for n in inputs])
    except Exception as error:
        return f"{type(error).__name__}: {error}", nodes[-1]
    for value, name in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
        if why := _unlike(value, g.known[name]):
            return why, next(node for node in nodes if name in node.output)
    return None


def _differ(a: Any, b: Any) -> bool:
    return a.shape != b.shape or not np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)


def _smaller(nodes: list[Any]) -> Iterator[list[Any]]:
    """Yield fewer nodes: without the last, without some unused ones, and with the results of some as inputs."""
    for k in reversed(range(len(nodes))):
        yield [*nodes[:k], *nodes[k + 1 :]]


def difference(seed: int) -> str | None:
    """Return the error of the model of a seed, with as few nodes as still show it."""
    g = graph_of(seed)
    if not g.nodes or (first := wrong(g, g.nodes)) is None:
        return None
    nodes, shrunk = g.nodes, True
    while shrunk:
        shrunk = False
        for fewer in _smaller(nodes):
            if fewer and (found := wrong(g, fewer)) is not None:
                nodes, first, shrunk = fewer, found, True
                break
    told = "; ".join(onnx.printer.to_text(n) for n in nodes)
    leaves = {n: g.leaves.get(n, "value") for node in nodes for n in reads(node)}
    return f"seed {seed}, version {g.version}: {first[0]}\n  {told}\n  {leaves}"


@pytest.mark.parametrize("part", range(4))
def test_random_graphs_give_what_onnxruntime_gives(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [why for seed in range(part * 10, part * 10 + 10) if (why := difference(seed)) is not None]
    assert not found, "\n".join(found)
