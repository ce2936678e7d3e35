"""Results that are dictionaries and dataclasses at once, as libraries of models return them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import tracecomp as torch


@dataclass
class Output(OrderedDict):  # type: ignore[type-arg]
    """Fields that are items too."""

    sample: Any
    loss: Any = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def test_a_dictionary_that_is_a_dataclass_comes_back_whole_from_every_call() -> None:
    compiled = torch.compile(lambda x: Output(sample=x + 1, loss=(x * 2).sum()))
    x = torch.tensor([1.0, 2.0])
    for _ in range(3):
        found = compiled(x)
        assert type(found) is Output and list(found) == ["sample", "loss"]
        assert found.sample.tolist() == found["sample"].tolist() == [2.0, 3.0] and found.loss.item() == 6.0


def test_fields_without_a_value_are_no_items() -> None:
    compiled = torch.compile(lambda x: Output(sample=x + 1))
    for _ in range(3):
        found = compiled(torch.ones(1))
        assert list(found) == ["sample"] and found.loss is None and found.sample.tolist() == [2.0]
