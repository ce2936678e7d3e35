"""Writing recorded graphs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from tracecomp.base.atomic import write_file
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.open_sizes import OpenSizes, argument_names, asked_for
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.nn.module import Module
from tracecomp.onnx.check_export import check_results
from tracecomp.onnx.export_rules import RULES, Emitter
from tracecomp.onnx.model import UnsupportedError
from tracecomp.onnx.sizes import Fit, Size, generalize, grids
from tracecomp.record.capture import record
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
        recording, samples = _recorded_open(model, given, left_open)
    else:
        samples = [(given, *_recorded(model, given))]
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


def _recorded_open(model: Module, args: tuple[Any, ...], left_open: OpenSizes) -> tuple[Recording, list[Any]]:
    """The recording for all sizes, and arguments, results and recordings for some."""
    example = left_open.of(args)
    own = (args, *_recorded(model, args))
    # Sizes of one make another program (nothing is expanded), which is only run and compared.
    known = [example] if min(example.values()) > 1 else []
    refused: list[Exception] = []
    for corners, checks in grids(example):
        chosen = [*corners, *checks, *known]
        try:
            samples = [(a, *_recorded(model, a)) for a in (left_open.resized(args, c) for c in chosen)]
        except (RuntimeError, ValueError, IndexError) as error:  # other sizes may be right: models take multiples only
            refused.append(error)
            continue
        try:
            generalize([recording.graph for *_, recording in samples], Fit(corners, chosen[len(corners) :]))
            return samples[0][2], [samples[len(chosen) - len(known) - 1], own]
        except (
            UnsupportedError
        ) as error:  # halves follow from even sizes; what holds for them has to hold for these too
            refused.insert(0, error)
            known += [*corners, *checks]
    raise refused[0]


def _recorded(model: Module, args: tuple[object, ...]) -> tuple[Any, Recording]:
    training = [m for m in model.modules() if m.training] if isinstance(model, Module) else []
    name = getattr(model, "__name__", type(model).__name__)
    try:
        for module in training:
            module.training = False
        with no_grad():
            results, recording = record(model, args, {}, name, derive=False)
    finally:
        for module in training:
            module.training = True
    assert isinstance(recording, Recording)
    if recording.updates or recording.predicates or recording.effects:
        raise CaptureError(f"{name} cannot be exported: it writes state, or takes a path that depends on values")
    return results, recording


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
        missing = {n.op.name for n in recording.graph.live_nodes() if n.op.name not in RULES}
        if missing:
            raise UnsupportedError(f"ONNX has nothing for: {', '.join(sorted(missing))}")

    def model(self) -> Any:
        """The whole model."""
        graph, e = self.recording.graph, self.emitter
        inputs = [self._input(i.value, i.name, b) for i, b in zip(_open(graph), self.recording.inputs, strict=True)]
        for given in graph.inputs:
            if given.data is not None:
                e.names[given.value] = e.constant(given.data)
        for node in graph.live_nodes():
            self._write(node)
        outputs = [self._output(k, r) for k, r in enumerate(self.recording.results)]
        made = onnx.helper.make_graph(e.nodes, graph.name, [i for i in inputs if i is not None], outputs, e.weights)
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
            return onnx.helper.make_tensor_value_info(name, kind_of(value), _shown(value.shape))
        if binding.kind != "state" or not isinstance(binding.ref, Tensor):
            raise UnsupportedError(f"the model reads {name!r} from Python")
        e.names[value] = e.weight(name, binding.ref._data)
        return None

    def _write(self, node: Node) -> None:
        e = self.emitter
        origin = self.recording.graph.origin.get(node)
        e.scope = "/".join(origin.scope) if origin else ""
        try:
            e.define(node.outputs, RULES[node.op.name](e, node, *[e.names[v] for v in node.inputs]))
        except TypeError as error:
            raise UnsupportedError(f"{node.op.name} of a size that is left open ({error})") from error
        self.written.append(e.names[node.outputs[0]])

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
        return onnx.helper.make_tensor_value_info(name, kind_of(value), _shown(shape))


def _shown(shape: Sequence[Any]) -> list[int | str]:
    """A shape as models say it: open sizes by name."""
    return [str(n) if isinstance(n, Size) else n for n in shape]


def _open(graph: Graph) -> list[Any]:
    return [i for i in graph.inputs if i.role != "constant"]


def kind_of(value: Value) -> int:
    """ONNX's number for the dtype of ``value``."""
    found: int = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype.numpy))
    return found
