"""The result of ``export``: a model that can be saved, run, and inspected by the names of PyTorch's ``ONNXProgram``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from tracecomp.base.atomic import write_file
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.onnx.protos import ModelProto
from tracecomp.utils._pytree import tree_leaves

Array = np.ndarray[Any, Any]
_LARGE = 2**31 - 2**20
"""Limit of protobuf messages, 2 GB: larger models have their weights in a separate file."""


class ONNXProgram:
    """An exported model. Call it with the model's arguments: onnxruntime runs it, where it is installed."""

    def __init__(self, proto: ModelProto) -> None:
        self.model_proto = proto
        self.exported_program: object = None
        self._session: Any = None

    @property
    def model(self) -> Any:
        """The model for the package onnx-ir, built each time. ImportError without that package."""
        return import_module("onnx_ir").from_proto(self.model_proto)

    def __repr__(self) -> str:
        return f"ONNXProgram(\n{onnx.printer.to_text(self.model_proto.graph)}\n)"

    def __call__(self, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """The results, always as a tuple."""
        return self.compute_values([o.name for o in self.model_proto.graph.output], args, kwargs)

    def call_reference(self, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """The results as onnx's own, slow evaluator computes them."""
        evaluator = import_module("onnx.reference").ReferenceEvaluator(self.model_proto)
        return _tensors(evaluator.run(None, self._given(args, kwargs)))

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> tuple[Tensor, ...]:
        """The values of these names, results or inner values of the graph."""
        outputs = {o.name for o in self.model_proto.graph.output}
        made = {n for node in self.model_proto.graph.node for n in node.output}
        inner = [n for n in value_names if n not in outputs]
        if absent := [n for n in inner if n not in made]:
            raise ValueError(f"Value {absent[0]!r} not found in the model.")
        if not inner:
            if self._session is None:
                self.initialize_inference_session()
            return _tensors(self._session.run([*value_names], self._given(args, kwargs or {})))
        shown = onnx.ModelProto()
        shown.CopyFrom(self.model_proto)
        shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in inner)
        return _tensors(_session(shown.SerializeToString()).run([*value_names], self._given(args, kwargs or {})))

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session that calls use, by ``initializer`` of the model's bytes."""
        self._session = (initializer or _session)(self.model_proto.SerializeToString())

    def release(self) -> None:
        """Free the session; the next call creates another."""
        self._session = None

    def optimize(self) -> None:
        """Nothing: the graph is as small as it was recorded."""

    def apply_weights(self, state_dict: Mapping[str, Tensor]) -> None:
        """Replace weights, by name. KeyError for a name that is not a weight of the model."""
        weights = {w.name: w for w in self.model_proto.graph.initializer}
        for name, tensor in state_dict.items():
            told = weights[name].doc_string
            weights[name].CopyFrom(onnx.numpy_helper.from_array(tensor.detach().numpy(), name))
            weights[name].doc_string = told
        self.release()

    def save(
        self, destination: str | os.PathLike[str] | BinaryIO, *, include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False, external_data: bool | None = None,
    ) -> None:  # fmt: skip
        """Write the model. ``external_data`` puts the weights into a file next to it, ``destination`` with ``.data``.

        Models of 2 GB and more always are. ``include_initializers=False`` omits weights;
        ``keep_initializers_as_inputs`` makes them inputs (too), which the user of the model may pass. TypeError for
        ``external_data`` unless ``destination`` is a path.
        """
        proto = self.model_proto
        if keep_initializers_as_inputs or not include_initializers:
            proto = _without(proto, include_initializers, keep_initializers_as_inputs)
        if external_data or is_large(proto):
            if not isinstance(destination, str | os.PathLike):
                raise TypeError("ONNXProgram.save(): external data needs a destination path")
            _save_beside(proto, Path(destination))
        elif isinstance(destination, str | os.PathLike):
            data = proto.SerializeToString()
            write_file(Path(destination), lambda file: file.write(data))
        elif not hasattr(destination, "write"):
            kind = type(destination).__name__
            raise TypeError(f"ONNXProgram.save(): destination must be a path or a file open for writing, not {kind}")
        else:
            destination.write(proto.SerializeToString())

    def _given(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Array]:
        names = [i.name for i in self.model_proto.graph.input]
        arrays = [leaf.detach().numpy() for leaf in tree_leaves(tuple(args)) if isinstance(leaf, Tensor)]
        named = {k: v.detach().numpy() for k, v in kwargs.items() if isinstance(v, Tensor)}
        rest = [n for n in names if n not in named]
        if len(rest) != len(arrays) or named.keys() - {*names}:
            raise TypeError(
                f"the model takes {', '.join(names)}; got {len(arrays)} tensors, {', '.join(named) or 'none'} by name"
            )
        return dict(zip(rest, arrays, strict=True)) | named


def is_large(proto: ModelProto) -> bool:
    """Whether a model is too large for one message."""
    return int(proto.ByteSize()) >= _LARGE


def _session(data: bytes) -> Any:
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        raise ImportError(
            "ONNXProgram: running a model needs onnxruntime; tracecomp.onnx.load does not need it"
        ) from None
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _tensors(arrays: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(T.from_numpy(np.array(a)) for a in arrays)


def _without(proto: ModelProto, weights: bool, inputs: bool) -> Any:
    """The model without its weights, or with them as inputs."""
    new = onnx.ModelProto()
    new.CopyFrom(proto)
    if inputs:
        kinds = [onnx.helper.make_tensor_value_info(w.name, w.data_type, [*w.dims]) for w in proto.graph.initializer]
        new.graph.input.extend(kinds)
    if not weights:
        del new.graph.initializer[:]
    return new


def _save_beside(proto: ModelProto, path: Path) -> None:
    """Write the model, and its weights to a file next to it, each at an offset for mapping."""
    new = onnx.ModelProto()
    new.CopyFrom(proto)
    location = f"{path.name}.data"
    pieces: list[tuple[int, bytes]] = []
    end = 0
    for weight in new.graph.initializer:
        start = -(-end // _PAGE) * _PAGE
        end = start + len(weight.raw_data)
        pieces.append((start, weight.raw_data))
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", start), ("length", end - start)):
            weight.external_data.add(key=key, value=str(value))

    def write(file: BinaryIO) -> None:
        for start, data in pieces:
            file.write(b"\0" * (start - file.tell()))
            file.write(data)

    write_file(path.parent / location, write)
    text = new.SerializeToString()
    write_file(path, lambda file: file.write(text))


_PAGE = 4096
"""Systems map files by pages."""
