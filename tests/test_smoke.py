"""A cross-section in seconds, for use while working: ``pytest -m smoke``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.__main__ import main
from tracecomp.base import config
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph

pytestmark = pytest.mark.smoke


def softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / e.sum(1, keepdim=True)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_eager_functions_are_numpys() -> None:
    a, b = numbers(5, 7), numbers(7, 3)
    found = torch.tensor(a) @ torch.tensor(b)
    np.testing.assert_allclose(found.numpy(), a.astype(float) @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(softmax(torch.tensor(a)).sum(1).numpy(), np.ones(5), rtol=1e-6)


def test_writes_through_views_reach_the_base() -> None:
    x = torch.zeros(3, 4)
    x[1].add_(2)
    x.t()[0] = 5
    assert x.tolist() == [[5, 0, 0, 0], [5, 2, 2, 2], [5, 0, 0, 0]]


def test_gradients_are_the_formulas() -> None:
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (torch.sin(x) * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([math.cos(v) * v + math.sin(v) for v in (0.5, -1.0, 2.0)], abs=1e-15)


def test_bad_calls_name_what_is_wrong() -> None:
    with pytest.raises(RuntimeError, match=r"2.*3.*4.*5"):
        torch.ones(2, 3) @ torch.ones(4, 5)


def test_a_trace_is_a_graph_that_reads_back() -> None:
    graph = torch.trace(softmax, torch.ones(4, 6))
    assert [node.op.name for node in graph.nodes] == ["max", "reshape", "sub", "exp", "sum", "reshape", "div"]
    assert print_graph(parse_graph(str(graph)), comments=False) == print_graph(graph, comments=False)


def test_compiled_results_are_the_eager_ones_with_the_same_bits_for_any_number_of_threads() -> None:
    compiled, x = torch.compile(softmax), torch.tensor(numbers(600, 301))
    found = []
    for threads in (1, 2, 3):
        with config.override(num_threads=threads):
            found += [compiled(x).numpy() for _ in range(2)]
    np.testing.assert_allclose(found[1], softmax(x).numpy(), rtol=1e-6)
    assert len({result.tobytes() for result in found[1:]}) == 1


def test_a_training_step_is_one_recording_with_the_eager_losses() -> None:
    x, y = torch.tensor(numbers(16, 6)), torch.arange(16) % 3
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)

        def step(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if compiled else step
        losses.append([float(run()) for _ in range(5)])
        assert not compiled or "recordings 1," in str(run.explain())
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0]


def test_compare_agrees_on_every_stage() -> None:
    report = torch.compare(softmax, torch.tensor(numbers(4, 6)))
    assert report.ok, str(report)


def test_a_dump_holds_every_stage(tmp_path: Path) -> None:
    with config.override(dump=str(tmp_path)):
        compiled = torch.compile(softmax)
        for _ in range(2):
            compiled(torch.ones(3, 5))
    names = [path.name.split("_", 1)[1] for path in sorted((tmp_path / "softmax").glob("*.ir"))]
    assert names[0] == "recorded.ir" and {"fusion.ir", "program.ir"} <= set(names)


def test_the_command_line_traces_a_function_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("def doubled(x):\n    return x * 2\n")
    assert main(["trace", f"{program}:doubled", "--shape", "2,3"]) == 0
    assert parse_graph(capsys.readouterr().out).nodes[-1].op.name == "mul"
