"""The graph of an ONNX file in TensorBoard's form."""

from __future__ import annotations

from typing import Any

from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.versions_pb2 import VersionDef

from tracecomp.utils.tensorboard._proto_graph import node_proto

__all__ = ["load_onnx_graph"]


def load_onnx_graph(fname: str) -> Any:
    """Read the graph of the file ``fname``. Needs the package ``onnx``."""
    import onnx

    g = onnx.load(fname).graph
    nodes = [
        node_proto(
            value.name, op=" ".join(str(value.type.tensor_type.shape.dim).split()),
            outputsize=[dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in (*g.output, *g.input)
    ]  # fmt: skip
    for node in g.node:
        attributes = ", ".join(" ".join(str(attribute).split()) for attribute in node.attribute)
        name = node.output[0]
        nodes.append(node_proto(name, op=node.op_type, input=list(node.input), attributes=attributes))
    return GraphDef(node=nodes, versions=VersionDef(producer=22))
