"""FlopCounterMode counts what PyTorch's counts: products forward and backward, also without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp
from tracecomp.utils.flop_counter import FlopCounterMode

reference = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode as Reference  # noqa: E402


def linear(torch: Any) -> Any:
    return torch.nn.Linear(8, 16)(torch.ones(4, 8))


def mlp(torch: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return model(torch.ones(4, 8, requires_grad=True)).sum().backward()


def convolution(torch: Any) -> Any:
    return torch.nn.Conv2d(3, 8, 3, padding=1, groups=1)(torch.ones(2, 3, 10, 10))


def grouped(torch: Any) -> Any:
    return torch.nn.Conv2d(4, 8, 3, stride=2, groups=2)(torch.ones(2, 4, 11, 11))


def transposed(torch: Any) -> Any:
    layer = torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1)
    return layer(torch.ones(2, 4, 5, 5, requires_grad=True)).sum().backward()


def products(torch: Any) -> Any:
    return torch.ones(5, 2, 3) @ torch.ones(5, 3, 7), torch.ones(2, 3) @ torch.ones(3, 7), torch.ones(3) + 1


def without_memory(torch: Any) -> Any:
    with torch.device("meta"):
        return torch.nn.Linear(1 << 16, 1 << 16)(torch.ones(2, 1 << 16))


@pytest.mark.parametrize("program", [linear, mlp, convolution, grouped, transposed, products, without_memory])
def test_totals_are_pytorchs(program: Callable[[Any], Any]) -> None:
    with FlopCounterMode(display=False) as ours:
        program(tracecomp)
    with Reference(display=False) as theirs:
        program(reference)
    assert ours.get_total_flops() == theirs.get_total_flops() > 0


def test_modules_have_their_share() -> None:
    model = tracecomp.nn.Sequential(tracecomp.nn.Linear(8, 16), tracecomp.nn.Linear(16, 3))
    with FlopCounterMode(display=False) as counter:
        model(tracecomp.ones(4, 8))
    shares = {path: sum(found.values()) for path, found in counter.get_flop_counts().items()}
    assert shares == {"Global": 1408, "Sequential": 1408, "Sequential.0": 1024, "Sequential.1": 384}
    assert "Sequential.1" in counter.get_table(2) and "Sequential.1" not in counter.get_table(1)
    tracecomp.ones(3, 3) @ tracecomp.ones(3, 3)
    assert counter.get_total_flops() == 1408
