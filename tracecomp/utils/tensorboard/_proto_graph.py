"""Nodes of TensorBoard's graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

__all__ = ["attr_value_proto", "node_proto", "tensor_shape_proto"]


def attr_value_proto(dtype: object, shape: Sequence[int] | None, s: str | None) -> dict[str, Any]:
    """The attributes of a node: a text, and the shape of its result."""
    attributes = {}
    if s is not None:
        attributes["attr"] = AttrValue(s=s.encode())
    if shape is not None:
        attributes["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[tensor_shape_proto(shape)]))
    return attributes


def tensor_shape_proto(outputsize: Sequence[int]) -> Any:
    """A shape."""
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in outputsize])


def node_proto(
    name: str, op: str = "UnSpecified", input: list[str] | str | None = None, dtype: object = None,
    shape: object = None, outputsize: Sequence[int] | None = None, attributes: str = "",
) -> Any:  # fmt: skip
    """A node.

    Args:
        name: its path; parts before a slash are groups.
        op: the kind.
        input: the nodes whose results it takes.
        dtype: ignored.
        shape: ignored.
        outputsize: the shape of the result.
        attributes: a text that TensorBoard shows.
    """
    sources = [] if input is None else input if isinstance(input, list) else [input]
    return NodeDef(name=name.encode(), op=op, input=sources, attr=attr_value_proto(dtype, outputsize, attributes))
