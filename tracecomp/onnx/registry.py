"""Import rules of ONNX's operators: one entry for each, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.onnx.model import Node

Array = np.ndarray[Any, Any]
Value = Any
"""A tensor, an array that is known when a model is read, a list of such (a sequence), or None (left out)."""


@dataclass
class Call:
    """One application of an operator: its attributes, the version of its operator set, and what surrounds it."""

    node: Node
    opset: int
    run_body: Callable[[Any, Sequence[Value], Call], list[Value]]
    outer: dict[str, Value]
    training: bool = False
    small: Mapping[str, int] = field(default_factory=dict)

    def small_type(self, operand: int) -> int | None:
        """The type of an operand, if it has one of few bits."""
        names = self.node.inputs
        return self.small.get(names[operand]) if operand < len(names) else None

    def attr(self, name: str, default: object = None) -> Any:
        """An attribute, or ``default``."""
        return self.node.attrs.get(name, default)

    @property
    def results(self) -> int:
        """How many results are wanted."""
        return len(self.node.outputs)

    def refuse(self, what: str) -> UnsupportedError:
        """An error about this application."""
        return UnsupportedError(f"{self.node.op} ({self.node.name or self.node.outputs[0]}): {what}")


@dataclass(frozen=True)
class Rule:
    """How an operator is run. ``static``: operands that must be known as arrays; ``raw``: all are given as they are."""

    run: Callable[..., Any]
    static: frozenset[int]
    raw: bool


RULES: dict[tuple[str, str], Rule] = {}


def rule(
    *names: str, domain: str = "", static: Sequence[int] = (), raw: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the rule of these operators: it takes the call and the operands, and returns the results."""

    def put(fn: Callable[..., object]) -> Callable[..., Any]:
        for name in names:
            assert (domain, name) not in RULES, name
            RULES[domain, name] = Rule(fn, frozenset(static), raw)
        return fn

    return put


def ints(value: Value) -> list[int]:
    """The numbers of an array or tensor as a list."""
    if isinstance(value, Tensor):
        value = value.tolist()
    found = np.asarray(value)
    return [int(n) for n in found.reshape(-1)]
