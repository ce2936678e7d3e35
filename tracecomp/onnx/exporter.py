"""Writing recorded graphs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Any, BinaryIO

import numpy as np
import onnx

from tracecomp.base.user_warnings import warn_as_pytorch, warn_user
from tracecomp.compiled.open_sizes import asked_for
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph, Value
from tracecomp.nn.module import Module
from tracecomp.onnx.check_export import check_path, check_results
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.onnx.export_marks import OperatorExportTypes, TrainingMode
from tracecomp.onnx.export_rules import Emitter, missing, number_of, shown
from tracecomp.onnx.program import ONNXProgram, is_large
from tracecomp.onnx.protos import ModelProto, NodeProto
from tracecomp.onnx.recorded import named_in_order, other_paths, recorded, recorded_open, unpacked
from tracecomp.record.recording import Recording
from tracecomp.record.results import Made
from tracecomp.version import __version__

Array = np.ndarray[Any, Any]
OPSET = 20
"""The version of the operators that models are written for by default."""
OPSETS = range(11, onnx.defs.onnx_opset_version() + 1)
Open = dict[tuple[int, int], str]
"""Names of the sizes that are left open, by argument and dimension."""


def export(
    model: Module, args: object = (), f: str | os.PathLike[str] | BinaryIO | None = None, *,
    kwargs: Mapping[str, object] | None = None, input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None, opset_version: int | None = None, dynamic_axes: object = None,
    dynamic_shapes: object = None, external_data: bool | None = None, keep_initializers_as_inputs: bool = False,
    export_params: bool = True, check: bool = True, training: TrainingMode = TrainingMode.EVAL,
    custom_translation_table: Mapping[Any, Any] | None = None, dynamo: bool = True, verbose: bool | None = None,
    optimize: bool = True, do_constant_folding: bool = True, verify: bool = True, report: bool = False,
    profile: bool = False, dump_exported_program: bool = False, artifacts_dir: str | os.PathLike[str] = ".",
    fallback: bool = False, operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    custom_opsets: Mapping[str, int] | None = None, export_modules_as_functions: object = False,
    autograd_inlining: bool = True,
) -> ONNXProgram:  # fmt: skip
    """Write ``model``, as it runs on ``args`` and ``kwargs``, as an ONNX model to ``f``, and return it as a program.

    ``args`` is a tensor or a tuple, whose last element may be a dict of arguments by name. Those of a program of
    ``torch.export`` are its example's if none are given. A module is recorded in evaluation mode; its parameters and
    buffers are the model's weights. Sizes are those of ``args``, except the dynamic ones of ``dynamic_axes`` (``{"x":
    {0: "batch"}}`` or ``{"x": [0]}``) or ``dynamic_shapes`` (by name or in order of the arguments, ``{0:
    Dim("batch")}`` or ``{0: "batch"}``); sizes of one name are equal. The model is then recorded for several sizes;
    UnsupportedError names numbers that do not follow from them.

    ``check`` lets onnx check the model, and onnxruntime, where it is installed, run it: OnnxExporterError names the
    first node that differs from the recording. UnsupportedError names all primitives without an ONNX operator, before
    anything is written. ValueError for an ``opset_version`` below 11 or that the installed onnx does not know.
    ``external_data``, ``export_params`` (False: without weights) and ``keep_initializers_as_inputs`` are those of
    ``ONNXProgram.save``. A UserWarning is given if ``training`` selects another mode than evaluation, the mode of every
    export; UnsupportedError when ``custom_translation_table`` has entries. The arguments from ``dynamo`` on select
    modes of PyTorch's exporter and have no effect.
    """
    if custom_translation_table:
        raise UnsupportedError("onnx.export(): custom_translation_table is not supported")
    if training is not TrainingMode.EVAL and getattr(model, "training", False):
        cause, cost = f"onnx.export(): {training} is not supported", "The model is exported in evaluation mode"
        warn_user(cause, cost, "Call model.eval() first, or leave out the argument training")
    version = OPSET if opset_version is None else opset_version
    if version not in OPSETS:
        raise ValueError(f"onnx.export(): opset_version must be {OPSETS.start} to {OPSETS[-1]}, got {version}")
    proto = _written(
        model, args, kwargs or {}, version, input_names, output_names, (dynamic_axes, dynamic_shapes), check
    )
    program = ONNXProgram(proto)
    if f is not None:
        program.save(
            f, external_data=external_data, include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
        )  # fmt: skip
    return program


def _written(
    model: Module, args: object, kwargs: Mapping[str, object], version: int, input_names: Sequence[str] | None,
    output_names: Sequence[str] | None, dynamic: tuple[object, object], check: bool,
) -> ModelProto:  # fmt: skip
    """The model as a message; ``dynamic`` says which sizes are dynamic, by axes and by shapes."""
    model, given, names = unpacked(model, args, kwargs, input_names)
    left_open = asked_for("onnx.export()", given, names, *dynamic)
    if left_open.names:
        recording, samples = recorded_open(model, given, left_open, version)
    else:
        samples = [(given, *recorded(model, given, version))]
        recording = samples[0][2]
    given_names = named_in_order("output", output_names, [f"output{k}" for k in range(len(recording.results))])
    if twice := sorted({*names} & {*given_names}):
        raise ValueError(f"onnx.export(): an input and an output are both called {twice[0]!r}")
    _warn_of_unknown(dynamic[0], {*names, *given_names})
    writer = _Writer(recording, version, given, names, given_names, left_open.names)
    proto = writer.model()
    if check and not is_large(proto):
        _check_types(proto, version)
        for arguments, results, one in samples:
            check_results(proto, one.graph, arguments, results, writer.written)
    if left_open.names and not is_large(proto):
        for sizes, arguments, results in other_paths(model, samples[0][0], left_open):
            check_path(proto, recording.graph, sizes, arguments, results)
    return proto


def _warn_of_unknown(dynamic_axes: object, names: Set[str]) -> None:
    """Warn, as PyTorch does, of names in ``dynamic_axes`` that neither an input nor an output has."""
    for key in dynamic_axes if isinstance(dynamic_axes, Mapping) else ():
        if key not in names:
            warn_as_pytorch(
                f"onnx.export(): Provided key {key} for dynamic axes is not a valid input/output name; "
                f"the names are {', '.join(sorted(names))}"
            )


def _check_types(proto: ModelProto, version: int) -> None:
    """UnsupportedError where an older version of an operator does not take the types that a newer one takes."""
    try:
        onnx.checker.check_model(proto, full_check=True)
    except onnx.shape_inference.InferenceError as error:
        if version >= OPSET:
            raise
        why = str(error).strip().splitlines()[-1]
        raise UnsupportedError(f"opset {version} cannot express this, opset {OPSET} may: {why}") from error


class _Writer:
    def __init__(
        self, recording: Recording, version: int, args: Sequence[object], input_names: Sequence[str],
        output_names: Sequence[str], left_open: Open,
    ) -> None:  # fmt: skip
        self.recording = recording
        self._args = args
        self.written: list[str] = []
        """The first result of every node, in the graph's order."""
        self._open = left_open
        self._results: dict[str, str] = {}
        """Names of results that are outputs, and what those are called."""
        self.emitter = Emitter(version, [*input_names, *output_names])
        self.input_names = input_names
        self.output_names = output_names
        if absent := missing(recording.graph):
            raise UnsupportedError(f"cannot be exported: {', '.join(sorted(absent))}")

    def model(self) -> Any:
        """The whole model."""
        graph, e = self.recording.graph, self.emitter
        for given, binding in zip(_open(graph), self.recording.inputs, strict=True):
            self._input(given.value, given.name, binding)
        inputs = self._inputs()
        e.constants(graph)
        for node in graph.live_nodes():
            e.write(graph, node)
            self.written.append(e.names[node.outputs[0]])
        outputs = [self._output(k, r) for k, r in enumerate(self.recording.results)]
        nodes = _live(self._named([*e.fixed, *e.nodes]), {o.name for o in outputs})
        read = set().union(*map(_reads, nodes))
        weights = [w for w in e.weights if w.name in read]
        made = onnx.helper.make_graph(nodes, graph.name, inputs, outputs, weights)
        opsets = [onnx.helper.make_opsetid("", e.version)]
        return onnx.helper.make_model(
            made, opset_imports=opsets, ir_version=onnx.helper.find_min_ir_version_for(opsets),
            producer_name="tracecomp", producer_version=__version__,
        )  # fmt: skip

    def _named(self, nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
        """The nodes, whose results have the names that the model's outputs have."""
        self.written = [self._results.get(name, name) for name in self.written]
        for node in nodes if self._results else ():
            _rename(node, self._results)
        return nodes

    def _input(self, value: Value, name: str, binding: Any) -> None:
        e = self.emitter
        if binding.kind == "argument":
            e.names[value] = self.input_names[binding.ref]
        elif binding.kind != "state" or not isinstance(binding.ref, Tensor):
            raise UnsupportedError(
                f"the model reads the Python value {name!r}: pass it as a tensor argument or keep it constant"
            )
        else:
            e.names[value] = e.weight(name, binding.ref._data, binding.ref.requires_grad)

    def _inputs(self) -> list[Any]:
        """The arguments, those that are not read, too: whoever runs the model gives it all of them."""
        e, found = self.emitter, []
        for k, (name, given) in enumerate(zip(self.input_names, self._args, strict=True)):
            if isinstance(given, Tensor):
                shape = [self._open.get((k, axis), n) for axis, n in enumerate(given.shape)]
                e.open |= {s: (name, axis) for axis, s in enumerate(shape) if isinstance(s, str) and s not in e.open}
                found.append(onnx.helper.make_tensor_value_info(name, number_of(given.dtype), shape))
        return found

    def _output(self, number: int, result: object) -> Any:
        if not isinstance(result, Made):
            raise UnsupportedError("every output must be a newly computed tensor: return x.clone()")
        value = self.recording.graph.outputs[result.number].value
        name = self.output_names[number]
        found = self.emitter.names[value]
        shape = value.shape
        if result.order is not None:  # the graph has it in the order of memory
            back = [int(n) for n in np.argsort(result.order)]
            found, shape = self.emitter.node("Transpose", [found], perm=back), tuple(shape[n] for n in back)
        if found in self._results or not any(found in node.output for node in self.emitter.nodes):
            self.emitter.nodes.append(onnx.helper.make_node("Identity", [found], [name]))
        else:
            self._results[found] = name
        return onnx.helper.make_tensor_value_info(name, number_of(value.dtype), shown(shape))


def _open(graph: Graph) -> list[Any]:
    return [i for i in graph.inputs if i.role != "constant"]


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Call what a node and its bodies read and give by other names."""
    for row in (node.input, node.output):
        row[:] = [names.get(name, name) for name in row]
    for body in [a.g for a in node.attribute if a.HasField("g")]:
        for inner in body.node:
            _rename(inner, names)


def _live(nodes: Sequence[NodeProto], wanted: set[str]) -> list[Any]:
    """The nodes that ``wanted`` results need: some rules read through earlier nodes."""
    found = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            found.append(node)
            wanted |= _reads(node)
    return found[::-1]


def _reads(node: NodeProto) -> set[str]:
    """The operands of a node, and its bodies."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    return {*node.input}.union(*[_reads(inner) for body in bodies for inner in body.node])
