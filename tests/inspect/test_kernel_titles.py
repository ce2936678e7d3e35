"""Titles of kernels: modules, functions and lines of the program, in explain, profiles and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.nn import functional as F
from tracecomp.passes.kernel_title import KernelTitle, common_title


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return F.gelu(self.mlp(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def titles(fn: Any, *args: Any) -> list[KernelTitle]:
    return [k.title for k in torch.explain(fn, *args).kernels if not k.prepares]


def test_a_kernel_is_called_by_its_module_and_functions() -> None:
    found = titles(Net(), torch.randn(8, 16))
    assert [t.path for t in found] == ["blocks.0.mlp", "blocks.1.mlp"]
    assert all(t.functions == ("linear", "gelu") and not t.backward for t in found)
    assert str(found[0]).startswith("blocks.0.mlp: linear + gelu, test_kernel_titles.py:")


def test_backward_kernels_and_updates_say_so() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    found = titles(step, torch.randn(8, 16))
    backward = [t for t in found if t.backward]
    assert {"blocks.0.mlp", "blocks.1.mlp"} <= {t.path for t in backward} | {t.path for t in found}
    assert any(" backward: " in str(t) and t.functions[0] == "linear" for t in backward)
    assert any("SGD" in t.functions for t in found)


def test_outside_modules_a_kernel_is_called_by_its_functions_and_line() -> None:
    (found,) = titles(lambda x: torch.exp(x) + 1, torch.randn(64))
    assert found.path == "" and str(found).startswith("exp + add, test_kernel_titles.py:")


def test_calls_of_one_kernel_have_one_title() -> None:
    one, other = (KernelTitle(f"blocks.{n}.mlp", ("linear", "gelu"), False, ("gpt.py:13",)) for n in range(2))
    assert common_title([one]) == "blocks.0.mlp: linear + gelu, gpt.py:13"
    assert common_title([one, other, one]) == "blocks.*.mlp: linear + gelu, gpt.py:13"
    head = KernelTitle("head", ("linear",), False, ("gpt.py:20",))
    assert common_title([one, head]) == "blocks.0.mlp and others: linear + ..., gpt.py:13, gpt.py:20"


@pytest.mark.parametrize("everything", [False, True])
def test_text_and_profile_use_titles(everything: bool) -> None:
    net, x = torch.compile(Net()), torch.randn(8, 16)
    text = net.explain(x).text(everything)
    assert "mlp: linear + gelu" in text
    if not everything:
        assert "k0_" not in text and "k1_" not in text
    assert "blocks.0.mlp: linear + gelu" in str(net.profile(x, calls=2))


def test_a_report_has_titles_and_phases(tmp_path: Path) -> None:
    net = Net()

    def step(x: Any) -> Any:
        net.zero_grad()
        loss = net(x).sum()
        loss.backward()
        return loss

    path = torch.compile(step).report(tmp_path / "r.html", torch.randn(8, 16))
    (program,) = json.loads(path.with_suffix(".json").read_text())["programs"]
    assert all(program["titles"][c["name"]] and c["title"] and c["computed"] for c in program["calls"])
    phases = program["kernelGraph"]["phases"]
    assert len(phases) == program["memory"]["calls"] and {"forward", "backward"} <= set(phases)
