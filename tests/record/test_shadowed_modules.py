"""An attribute in a module's ``__dict__`` goes before a parameter, buffer or submodule of its name, at any call."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.layer.weight)
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.weight + self.offset


@pytest.mark.parametrize("name", ["layer", "weight", "offset"])
@pytest.mark.parametrize("first", [False, True], ids=["later", "from the first call on"])
def test_a_shadow_is_seen(name: str, first: bool) -> None:
    model = Model()
    compiled = torch.compile(model)
    x = torch.tensor([1.0, 2.0])
    shadow: Any = nn.ReLU() if name == "layer" else torch.full((2,), 3.0)
    if not first:
        for _ in range(3):
            assert compiled(x).tolist() == model(x).tolist() == [1.0, 2.0]
    for _ in range(2):
        object.__setattr__(model, name, shadow)
        for _ in range(3):
            assert compiled(x * -1).tolist() == model(x * -1).tolist()
        del model.__dict__[name]
        for _ in range(3):
            assert compiled(x).tolist() == model(x).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("first", [False, True], ids=["later", "from the first call on"])
def test_a_shadow_of_a_part_that_a_built_in_layer_reads_is_seen(first: bool) -> None:
    """Layers of this package read their parameters, buffers and submodules unobserved."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2), nn.LayerNorm(2)).eval()
    nn.init.eye_(model[0].weight)
    compiled = torch.compile(model)
    x = torch.tensor([[1.0, 2.5], [-1.0, 0.5]])
    shadows = {0: ("weight", torch.full((2, 2), 3.0)), 1: ("running_mean", torch.ones(2)), 2: ("bias", torch.ones(2))}
    for _ in range(0 if first else 3):
        assert compiled(x).tolist() == model(x).tolist()
    for number, (name, shadow) in shadows.items():
        vars(model[number])[name] = shadow
        for _ in range(3):
            assert compiled(x).tolist() == model(x).tolist()
        del vars(model[number])[name]
        for _ in range(3):
            assert compiled(x).tolist() == model(x).tolist()
