"""Reading ONNX models: protobuf messages become plain records, and nothing is believed that is not checked."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tracecomp.ir.op import Attrs
from tracecomp.onnx.protos import AttributeProto, ModelProto, NodeProto, SparseTensorProto, TensorProto
from tracecomp.onnx.small_types import small_values, widened
from tracecomp.onnx.wire import Skeleton, skeleton

Array = np.ndarray[Any, Any]


@dataclass
class Node:
    """One application of an operator; ``""`` represents an omitted operand or result."""

    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attrs: Attrs
    name: str
    proto: Any = field(repr=False, default=None)


@dataclass
class GraphRecord:
    """A graph or the body of a control operator. ``weights`` are its initializers."""

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    weights: dict[str, Array]
    types: dict[str, Any] = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    """Weights that say that they are not trained."""

    def captured(self) -> list[str]:
        """The values of graphs around this one that it reads."""
        known = {*self.inputs, *self.weights}
        found: dict[str, None] = {}
        for node in self.nodes:
            inner = [name for g in node.attrs.values() if isinstance(g, GraphRecord) for name in g.captured()]
            found.update(dict.fromkeys(n for n in (*node.inputs, *inner) if n and n not in known))
            known.update(node.outputs)
        found.update(dict.fromkeys(n for n in self.outputs if n and n not in known))
        return [*found]

    def walk(self) -> Iterator[Node]:
        """Every node, those of bodies too."""
        for node in self.nodes:
            yield node
            for value in node.attrs.values():
                if isinstance(value, GraphRecord):
                    yield from value.walk()


BUFFER = "buffer"
"""The ``doc_string`` of an exported initializer that is not trained."""


@dataclass
class Model:
    """A model: its graph, the version of each operator set, and functions that it brings along."""

    graph: GraphRecord
    opsets: dict[str, int]
    functions: Mapping[tuple[str, str], Any]
    small: Mapping[str, int] = field(default_factory=dict)
    """The types of values that have types of few bits, by name."""


def read(source: str | os.PathLike[str] | bytes | Any) -> Model:
    """The model in a file, in bytes, or of protobuf. ValueError describes an invalid one."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else nullcontext(b"") as data:
                found = skeleton(data, file.fileno())
            return _model(_parsed(found.text, os.fspath(source)), Path(source).parent, found)
    if isinstance(source, bytes):
        found = skeleton(source, source)
        return _model(_parsed(found.text, "the model"), None, found)
    return _model(getattr(source, "model_proto", source))


def _model(proto: ModelProto, folder: Path | None = None, found: Skeleton | None = None) -> Model:
    if not proto.HasField("graph") or not proto.opset_import:
        raise ValueError("the model lacks its graph or its operator set version")
    opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in proto.opset_import}
    functions = {(f.domain, f.name): f for f in proto.functions}
    return Model(graph_of(proto.graph, folder, found), opsets, functions, small_values(proto))


def _parsed(data: bytes, name: str) -> Any:
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # protobuf has its own errors, which are not one of Python's
        raise ValueError(f"{name} is not an ONNX model: {error}") from error


def graph_of(proto: ModelProto, folder: Path | None = None, found: Skeleton | None = None) -> GraphRecord:
    """The record of a graph's message; some of its weights may have been ``found`` before it was parsed."""
    held = found.places if found else {}
    weights = {
        t.name: widened(found.array(k, t)) if found and k in held else array_of(t, folder)
        for k, t in enumerate(proto.initializer)
    }
    for sparse in proto.sparse_initializer:
        weights[sparse.values.name] = _dense(sparse, folder)
    inputs = [i.name for i in proto.input if i.name not in weights]
    types = {i.name: i.type for i in (*proto.input, *proto.output, *proto.value_info)}
    nodes = [node_of(n, folder) for n in proto.node]
    outputs = [o.name for o in proto.output]
    return GraphRecord(proto.name, inputs, outputs, nodes, weights, types, _not_trained(proto, nodes))


_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
"""The key under which PyTorch's exporter stores the kind of a weight."""
_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))


def _not_trained(proto: ModelProto, nodes: Sequence[Node]) -> frozenset[str]:
    """Weights that are marked as not trained, or that PyTorch's exporters computed from constants.

    The latter have generated names, like transposed parameters; they are parameters if products read them.
    """
    kinds: dict[str, str] = {v.name: p.value for v in proto.value_info for p in v.metadata_props if p.key == _KIND}
    multiplied = {name for node in nodes if node.op in _PRODUCTS for name in node.inputs}

    def fixed(weight: Any) -> bool:
        if weight.doc_string == BUFFER:
            return True
        if weight.name in kinds:
            return kinds[weight.name] != "PARAMETER"
        unnamed = bool(kinds) or str(weight.name).startswith("onnx::")
        return unnamed and weight.name not in multiplied

    return frozenset(t.name for t in proto.initializer if fixed(t))


def node_of(proto: NodeProto, folder: Path | None = None) -> Node:
    """The record of a node's message."""
    attrs = {a.name: _value(a, folder) for a in proto.attribute if not a.ref_attr_name}
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return Node(proto.op_type, domain, [*proto.input], [*proto.output], attrs, proto.name, proto)


def array_of(tensor: TensorProto, folder: Path | None = None) -> Array:
    """The array of a tensor's message; data in other files are mapped, if they are in the model's folder."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return owned(widened(numpy_helper.to_array(tensor)))
    place = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise ValueError(f"tensor {tensor.name!r} is stored in another file, but the model was not loaded from a path")
    root, path = folder.resolve(), (folder / place["location"]).resolve()
    if root not in path.parents or not path.is_file():
        raise ValueError(f"tensor {tensor.name!r} is stored at {place['location']!r}, outside the model's folder")
    dtype, shape = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    offset = int(place.get("offset", 0))
    end = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if any(n < 0 for n in (*shape, offset)) or end > path.stat().st_size:
        raise ValueError(f"tensor {tensor.name!r} exceeds the size of {place['location']!r}")
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "c", offset, shape))


def owned(array: Array) -> Array:
    """``array`` where it can be written and is aligned, else a copy that can."""
    return array if array.flags.writeable and array.flags.aligned else np.array(array)


_FREE, _FOR_EACH = 1 << 26, 300
"""Bytes that any sparse tensor may take, and more for each of the file's: dimensions alone can ask for all memory."""


def _dense(sparse: SparseTensorProto, folder: Path | None) -> Array:
    values, places = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    size = int(np.prod(sparse.dims, dtype=object)) * values.itemsize
    if size > _FREE + _FOR_EACH * (values.nbytes + places.nbytes):
        raise ValueError(f"the sparse tensor {sparse.values.name!r} would take {size} bytes for {values.size} values")
    found = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        found.reshape(-1)[places] = values
    else:
        found[tuple(places.T)] = values
    return found


def _value(attribute: AttributeProto, folder: Path | None) -> Any:
    kind = onnx.AttributeProto
    match attribute.type:
        case kind.TENSOR:
            return array_of(attribute.t, folder)
        case kind.SPARSE_TENSOR:
            return _dense(attribute.sparse_tensor, folder)
        case kind.GRAPH:
            return graph_of(attribute.g, folder)
        case kind.GRAPHS:
            return [graph_of(g, folder) for g in attribute.graphs]
        case kind.TENSORS:
            return [array_of(t, folder) for t in attribute.tensors]
        case kind.TYPE_PROTO:
            return attribute.tp
    found = onnx.helper.get_attribute_value(attribute)
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, Sequence) and found and isinstance(found[0], bytes):
        return [f.decode() for f in found]
    return [*found] if isinstance(found, Sequence) and not isinstance(found, str) else found
