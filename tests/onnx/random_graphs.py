"""Random models of many operators, of any version of them: each node takes what those before it gave.

onnxruntime runs each node separately when it is added; nodes that it refuses are left out. So every value of a graph is
known, and a graph with a difference is reduced to the part that leads to the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

from tests.onnx.random_operators import Chance

runtime = pytest.importorskip("onnxruntime")

H = onnx.helper
Array = np.ndarray[Any, Any]
VERSIONS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
LARGEST = 1e4
"""Values beyond are left out: their differences say nothing."""


class Unfit(Exception):
    """No value fits an operator."""


@dataclass
class Graph:
    """A model that grows. ``known`` are all values by name; ``leaves`` are those that no node gave, by their place."""

    chance: Chance
    version: int
    nodes: list[Any] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, str] = field(default_factory=dict)

    def leaf(self, array: Array, place: str | None = None) -> str:
        """A new value that is given: an input, an initializer or a constant."""
        name = f"x{len(self.known)}"
        self.known[name] = np.asarray(array)
        self.leaves[name] = place or self.chance.one("input", "input", "weight", "constant")
        return name

    def fixed(self, *numbers: int) -> str:
        """Whole numbers that are known when the model is read."""
        return self.leaf(np.array(numbers, np.int64), self.chance.one("weight", "constant"))

    def pick(self, fits: Callable[[Array], bool]) -> str:
        """A value that ``fits``."""
        names = [n for n, a in self.known.items() if isinstance(a, np.ndarray) and fits(a)]
        if not names:
            raise Unfit
        return self.chance.one(*names[-12:])

    def floats(self, low: int = 0, high: int = 5) -> str:
        return self.pick(lambda a: a.dtype == np.float32 and low <= a.ndim <= high and 0 < a.size < 2000)

    def any(self, low: int = 0) -> str:
        return self.pick(lambda a: a.ndim >= low and 0 < a.size < 2000)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.known[name].shape)

    def put(self, op: str, inputs: Sequence[str], results: int = 1, **attrs: Any) -> None:
        """Add a node, if onnxruntime runs it and its result is of moderate size."""
        outputs = [f"y{len(self.known)}_{k}" for k in range(results)]
        node = H.make_node(op, [*inputs], outputs, **attrs)
        found = run(model_of([node], self.known, reads(node), {}, outputs, self.version), self.known)
        for value in found:
            if isinstance(value, np.ndarray) and (value.size > 4000 or large(value)):
                raise Unfit
        self.nodes.append(node)
        self.known.update(zip(outputs, found, strict=True))


def large(value: Array) -> bool:
    return value.dtype.kind == "f" and not bool(np.all(np.abs(value) < LARGEST))


def reads(node: Any) -> list[str]:
    """Return the values that a node and its bodies read."""
    found = [n for n in node.input if n]
    for a in node.attribute:
        if a.HasField("g"):
            own = {i.name for i in a.g.input} | {o for n in a.g.node for o in n.output}
            found += [n for inner in a.g.node for n in reads(inner) if n not in own]
            found += [o.name for o in a.g.output if o.name not in own]
    return [*dict.fromkeys(found)]


def info(name: str, value: Any) -> Any:
    if isinstance(value, list):
        inner = H.make_tensor_type_proto(H.np_dtype_to_tensor_dtype(value[0].dtype), None)
        return H.make_value_info(name, H.make_sequence_type_proto(inner))
    return H.make_tensor_value_info(name, H.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)


def model_of(
    nodes: Sequence[Any], known: dict[str, Any], given: Sequence[str], leaves: dict[str, str], outputs: Sequence[str],
    version: int,
) -> Any:  # fmt: skip
    """``given`` are read from outside, as ``leaves`` say (inputs, unless it says otherwise)."""
    place = {n: leaves.get(n, "input") for n in given}
    tensor = onnx.numpy_helper.from_array
    constants = [H.make_node("Constant", [], [n], value=tensor(known[n])) for n in given if place[n] == "constant"]
    inputs = [info(n, known[n]) for n in given if place[n] == "input"]
    weights = [tensor(known[n], n) for n in given if place[n] == "weight"]
    if version < 9:  # initializers were inputs, too
        inputs += [info(n, known[n]) for n in given if place[n] == "weight"]
    shown = [info(n, known[n]) if n in known else onnx.ValueInfoProto(name=n) for n in outputs]
    graph = H.make_graph([*constants, *nodes], "g", inputs, shown, weights)
    return H.make_model(graph, opset_imports=[H.make_opsetid("", version)], ir_version=3 if version < 9 else 8)


def run(model: Any, known: dict[str, Any]) -> list[Any]:
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    weights = {w.name for w in model.graph.initializer}
    fed = {i.name: known[i.name] for i in session.get_inputs() if i.name not in weights}
    return [*session.run(None, fed)]
