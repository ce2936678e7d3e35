"""``summary``: shapes, parameters and operations of modules, by formulas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.__main__ import main


def test_a_network_row_by_row() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    )
    net[4].bias.requires_grad_(False)
    before = net[1].running_mean.numpy().copy()
    found = torch.summary(net, torch.randn(2, 3, 6, 6))
    assert [(r.path, r.kind, r.outputs) for r in found.rows[:2]] == [
        ("", "Sequential", ((2, 10),)),
        ("0", "Conv2d", ((2, 8, 6, 6),)),
    ]
    assert (
        found.parameters == 8 * 3 * 9 + 8 + 16 + 8 * 36 * 10 + 10 and found.rows[0].trainable == found.parameters - 10
    )
    conv, linear = 2 * (2 * 8 * 36) * 27, 2 * 2 * 288 * 10
    rows = {r.path: r.operations for r in found.rows}
    assert rows["0"] == pytest.approx(conv + 2 * 8 * 36, rel=0.01) and rows["4"] == pytest.approx(linear + 20, rel=0.01)
    assert rows[""] >= sum(rows[str(n)] for n in range(5))
    assert net.training and np.array_equal(net[1].running_mean.numpy(), before)


def test_nested_and_repeated_modules() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))

    found = torch.summary(Twice(), torch.randn(3, 4))
    assert [r.path for r in found.rows] == ["", "inner", "inner.0", "inner.1", "inner", "inner.0", "inner.1"]
    assert [r.depth for r in found.rows][:3] == [0, 1, 2] and found.parameters == 20
    text = str(found)
    assert "20 parameters" in text and "inner (Sequential)" in text and "<table" in found._repr_html_()


def test_graphs_go_to_dot_and_networkx() -> None:
    graph = torch.trace(lambda x, y: torch.exp(x) * y + x, torch.ones(3), torch.ones(3))
    found = graph.to_networkx()
    operators = [d["op"] for _, d in found.nodes(data=True)]
    assert sorted(o for o in operators if o not in ("argument", "result")) == ["add", "exp", "mul"]
    assert found.number_of_edges() == 1 + 2 + 2 + 1
    assert {d["source"].rpartition("/")[2].partition(":")[0] for _, d in found.nodes(data=True)} == {
        "",
        "test_summary.py",
    }
    dot = graph.to_dot()
    assert dot.startswith("digraph") and dot.count("->") == 6 and "f32[3]" in dot
    assert "<pre" in graph._repr_html_()


def test_graphs_go_to_model_explorer() -> None:
    """A list of graphs whose nodes name where each operand comes from; modules are layers."""

    class Halves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            low, high = torch.sort(x)
            return low - high

    graph = torch.trace(torch.nn.Sequential(Halves()), torch.ones(4))
    (found,) = json.loads(graph.to_model_explorer())
    nodes = {n["id"]: n for n in found["nodes"]}
    assert len(nodes) == len(found["nodes"]) and found["id"] == graph.name
    assert {e["sourceNodeId"] for n in nodes.values() for e in n["incomingEdges"]} < nodes.keys()
    (sort,) = [n for n in nodes.values() if n["label"] == "sort"]
    assert sort["namespace"] == "Sequential/0/sort"
    assert [m["attrs"][0]["value"] for m in sort["outputsMetadata"]] == ["f32[4]", "i64[4]"]
    readers = [e for n in nodes.values() for e in n["incomingEdges"] if e["sourceNodeId"] == sort["id"]]
    assert {e["sourceNodeOutputId"] for e in readers} == {"0", "1"}


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text("import tracecomp.nn as nn\nmodel = nn.Sequential(nn.Linear(4, 2))\nf = abs\n")
    assert main(["summary", f"{tmp_path}/model.py:model", "--shape", "3,4"]) == 0
    assert "0 (Linear)" in capsys.readouterr().out
    assert main(["summary", f"{tmp_path}/model.py:model", "--shape", "3,4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["parameters"] == 10
    assert main(["summary", f"{tmp_path}/model.py:f", "--shape", "3,4"]) == 2
