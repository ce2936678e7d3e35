"""Operators as versions before 18 spell them, for models that are to run where no newer ones are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tracecomp.onnx.errors import UnsupportedError


class Writer(Protocol):
    """The emitter's interface for spellings: the version, constants by name, and functions to add nodes."""

    version: int
    held: dict[str, np.ndarray[Any, Any]]

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """The name of an operator's result."""

    def ints(self, *values: int) -> str:
        """The name of a vector."""


Attributes = dict[str, Any]
"""Attributes of an operator, by name."""
Spelled = tuple[str, Sequence[str], Attributes]
"""An operator, its operands and its attributes."""
Spelling = Callable[[Writer, str, Sequence[str], Attributes], Spelled]


def _axes(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """Axes were an attribute."""
    if len(inputs) < 2:
        return op, inputs, attrs
    return op, inputs[:1], {**attrs, "axes": [int(a) for a in e.held[inputs[1]]]}


def _part_of_shape(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """All sizes were given."""
    if not attrs:
        return op, inputs, attrs
    return "Slice", [e.node("Shape", inputs), e.ints(attrs["start"]), e.ints(attrs["end"])], {}


def _no_zeros(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """Replace sizes of 0, which denote those of the operand."""
    if 0 in e.held.get(inputs[1], ()):
        raise UnsupportedError(f"arrays without elements need opset 14, not {e.version}")
    return op, inputs, {k: v for k, v in attrs.items() if k != "allowzero"}


def _scattered(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """Elements were written only; then added and multiplied, too."""
    how = attrs.get("reduction", "none")
    if how != "none" and (e.version < 16 or how in ("max", "min")):
        raise UnsupportedError(f"ScatterElements ({how}) needs opset {16 if how in ('add', 'mul') else 18}")
    return op, inputs, attrs


def _or_equal(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """Before 16 these have no shapes inferred, which bodies of Scan need."""
    return "Or", [e.node(op.removesuffix("OrEqual"), inputs), e.node("Equal", inputs)], attrs


def _equal_parts(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    """How many parts was said by the results alone."""
    return op, inputs, {k: v for k, v in attrs.items() if k != "num_outputs"}


def _absent(e: Writer, op: str, inputs: Sequence[str], attrs: Attributes) -> Spelled:
    raise UnsupportedError(f"{op} needs opset {OLDER[op][0]}, not {e.version}")


OLDER: dict[str, tuple[int, Spelling]] = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceProd"), (18, _axes)),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), (13, _axes)),
    "Split": (18, _equal_parts), "Shape": (15, _part_of_shape), "Reshape": (14, _no_zeros),
    "ScatterElements": (18, _scattered),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), (16, _or_equal)), "Einsum": (12, _absent),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), (18, _absent)),
}  # fmt: skip
"""Since which version an operator is as rules write it, and how it was before."""
