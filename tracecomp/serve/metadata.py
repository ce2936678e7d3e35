"""Metadata of the server and of models, as both forms of the Open Inference Protocol report them."""

from __future__ import annotations

from typing import Any

from tracecomp import __version__
from tracecomp.serve.engine import Engine
from tracecomp.serve.signature import TensorSpec

EXTENSIONS = ("binary_tensor_data", "schedule_policy")


def server_metadata() -> dict[str, Any]:
    """The server's name, version and extensions of the protocol."""
    return {"name": "tracecomp", "version": __version__, "extensions": [*EXTENSIONS]}


def model_metadata(engine: Engine, name: str, version: str) -> dict[str, Any]:
    """A model's versions, inputs and outputs. NotFound, or Unavailable before it is ready."""
    model = engine.find(name, version)
    signature = model.signature
    return {
        "name": name, "versions": [*engine.models[name]], "platform": signature.platform,
        "inputs": [*map(_told, signature.inputs)], "outputs": [*map(_told, signature.outputs)],
    }  # fmt: skip


def _told(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [*spec.shape]}
