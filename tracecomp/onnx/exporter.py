"""Writing recorded graphs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from tracecomp.base.atomic import write_file
from tracecomp.compiled.open_sizes import argument_names, asked_for
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph, Value
from tracecomp.nn.module import Module
from tracecomp.onnx.check_export import check_results
from tracecomp.onnx.export_rules import Emitter, missing, number_of, shown
from tracecomp.onnx.model import UnsupportedError
from tracecomp.onnx.recorded import recorded, recorded_open
from tracecomp.record.recording import Recording
from tracecomp.record.results import Made
from tracecomp.version import __version__

Array = np.ndarray[Any, Any]
OPSET = 20
"""The version of the operators that models are written for unless told otherwise."""
OPSETS = range(18, 24)
Open = dict[tuple[int, int], str]
"""Names of the sizes that are left open, by argument and dimension."""


def export(
    model: Module, args: object, f: str | os.PathLike[str] | BinaryIO | None = None, *,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
    opset_version: int | None = None, dynamic_axes: object = None, dynamic_shapes: object = None, check: bool = True,
    **ignored: Any,
) -> Any:  # fmt: skip
    """Write ``model``, as it runs on ``args`` (a tensor or a tuple), as an ONNX model to ``f``; returns it as protobuf.

    A module is recorded in evaluation mode; its parameters and buffers are the model's weights. Sizes are those of
    ``args``, but for those that ``dynamic_axes`` (``{"x": {0: "batch"}}`` or ``{"x": [0]}``) or ``dynamic_shapes`` (by
    name or in order of the arguments, ``{0: Dim("batch")}`` or ``{0: "batch"}``) leave open; sizes of one name are
    equal. The model is recorded for several sizes then, and UnsupportedError says what does not follow from them.

    ``check`` lets onnx check the model, and onnxruntime, where it is installed, run it: RuntimeError names the first
    node that differs from the recording. UnsupportedError names everything that ONNX has no operator for, before
    anything is written; ValueError for an ``opset_version`` that is not one of 18 to 23. Options of PyTorch's exporter
    that choose how it works (``dynamo``, ``do_constant_folding``, ``verbose``...) change nothing.
    """
    version = OPSET if opset_version is None else opset_version
    if version not in OPSETS:
        raise ValueError(f"onnx.export(): opset_version must be {OPSETS.start} to {OPSETS[-1]}, got {version}")
    given = args if isinstance(args, tuple) else (args,)
    names = argument_names(model, given, input_names)
    left_open = asked_for("onnx.export()", given, names, dynamic_axes, dynamic_shapes)
    if left_open.names:
        recording, samples = recorded_open(model, given, left_open)
    else:
        samples = [(given, *recorded(model, given))]
        recording = samples[0][2]
    writer = _Writer(recording, version, names, output_names, left_open.names)
    proto = writer.model()
    if check:
        onnx.checker.check_model(proto, full_check=True)
        for arguments, results, one in samples:
            check_results(proto, one.graph, arguments, results, writer.written)
    if isinstance(f, str | os.PathLike):
        data = proto.SerializeToString()
        write_file(Path(f), lambda file: file.write(data))
    elif f is not None:
        f.write(proto.SerializeToString())
    return proto


class _Writer:
    def __init__(
        self, recording: Recording, version: int, input_names: Sequence[str], output_names: Sequence[str] | None,
        left_open: Open,
    ) -> None:  # fmt: skip
        self.recording = recording
        self.written: list[str] = []
        """The first result of every node, in the graph's order."""
        self._open = left_open
        self.emitter = Emitter(version)
        self.input_names = input_names
        self.output_names = output_names
        if absent := missing(recording.graph):
            raise UnsupportedError(f"cannot be exported: {', '.join(sorted(absent))}")

    def model(self) -> Any:
        """The whole model."""
        graph, e = self.recording.graph, self.emitter
        inputs = [self._input(i.value, i.name, b) for i, b in zip(_open(graph), self.recording.inputs, strict=True)]
        e.constants(graph)
        for node in graph.live_nodes():
            e.write(graph, node)
            self.written.append(e.names[node.outputs[0]])
        outputs = [self._output(k, r) for k, r in enumerate(self.recording.results)]
        nodes = _live([*e.fixed, *e.nodes], {o.name for o in outputs})
        read = set().union(*map(_reads, nodes))
        weights = [w for w in e.weights if w.name in read]
        made = onnx.helper.make_graph(nodes, graph.name, [i for i in inputs if i is not None], outputs, weights)
        opsets = [onnx.helper.make_opsetid("", e.version)]
        return onnx.helper.make_model(
            made, opset_imports=opsets, ir_version=min(onnx.IR_VERSION, 10), producer_name="tracecomp",
            producer_version=__version__,
        )  # fmt: skip

    def _input(self, value: Value, name: str, binding: Any) -> Any:
        e = self.emitter
        if binding.kind == "argument":
            name = self.input_names[binding.ref]
            e.names[value] = name
            e.open |= {s: (name, axis) for (k, axis), s in self._open.items() if k == binding.ref and s not in e.open}
            return onnx.helper.make_tensor_value_info(name, number_of(value.dtype), shown(value.shape))
        if binding.kind != "state" or not isinstance(binding.ref, Tensor):
            raise UnsupportedError(f"the model reads {name!r} from Python")
        e.names[value] = e.weight(name, binding.ref._data, binding.ref.requires_grad)
        return None

    def _output(self, number: int, result: object) -> Any:
        if not isinstance(result, Made):
            raise UnsupportedError("a result is a view, an input or no tensor: return new tensors (x.clone())")
        value = self.recording.graph.outputs[result.number].value
        name = self.output_names[number] if self.output_names else f"output{number}"
        found = self.emitter.names[value]
        shape = value.shape
        if result.order is not None:  # the graph has it in the order of memory
            back = [int(n) for n in np.argsort(result.order)]
            found, shape = self.emitter.node("Transpose", [found], perm=back), tuple(shape[n] for n in back)
        self.emitter.nodes.append(onnx.helper.make_node("Identity", [found], [name]))
        return onnx.helper.make_tensor_value_info(name, number_of(value.dtype), shown(shape))


def _open(graph: Graph) -> list[Any]:
    return [i for i in graph.inputs if i.role != "constant"]


def _live(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    """The nodes that ``wanted`` results need: some rules look through what was written before them."""
    found = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            found.append(node)
            wanted |= _reads(node)
    return found[::-1]


def _reads(node: Any) -> set[str]:
    """What a node reads, and its bodies."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    return {*node.input}.union(*[_reads(inner) for body in bodies for inner in body.node])
