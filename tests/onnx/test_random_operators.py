"""Operators with random attributes and shapes give what onnxruntime gives; ``python -m tests.fuzz.onnx_operators``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.onnx.random_operators import CONSTANT, MAKERS, Chance, Node

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from tracecomp.onnx import UnsupportedError, load  # noqa: E402 - after the package that it needs

H = onnx.helper


def model_of(name: str, node: Node) -> tuple[Any, dict[str, Any]]:
    """Return the model and its inputs."""
    given, weights, names = {}, [], []
    for k, array in enumerate(node.inputs):
        names.append("" if array is None else f"x{k}")
        if array is not None and k in CONSTANT.get(name, ()):
            weights.append(onnx.numpy_helper.from_array(array, f"x{k}"))
        elif array is not None:
            given[f"x{k}"] = array
    outputs = [f"y{k}" for k in range(node.outputs)]
    kinds = [
        H.make_tensor_value_info(key, H.np_dtype_to_tensor_dtype(a.dtype), [f"{key}_{d}" for d in range(a.ndim)])
        for key, a in given.items()
    ]
    made = H.make_node(name, names, outputs, **node.attributes)
    shown = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = H.make_graph([made], name, kinds, shown, weights)
    model = H.make_model(graph, opset_imports=[H.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), given


def difference(seed: int) -> str | None:
    """Return the wrong result of the operator of a seed; None if it is right or onnxruntime refuses the model."""
    name = [*MAKERS][seed % len(MAKERS)]
    node = MAKERS[name](Chance(seed))
    about = f"seed {seed}: {name} {node.attributes} of {[None if a is None else a.shape for a in node.inputs]}"
    model, given = model_of(name, node)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = session.run(None, given)
    except Exception:
        return None
    try:
        found = load(model)(*[torch.from_numpy(np.array(a)) for a in given.values()])
    except UnsupportedError:
        return None
    except Exception as error:
        return f"{about}: {type(error).__name__}: {error}"
    for have, want in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        have = have.detach().numpy()
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{about}: {have.dtype}{have.shape} for {want.dtype}{want.shape}"
        if not np.allclose(have, want, rtol=node.tolerance, atol=node.tolerance, equal_nan=True):
            return f"{about}: {have.ravel()[:8]} for {want.ravel()[:8]}"
    return None


@pytest.mark.parametrize("name", MAKERS)
def test_an_operator_gives_what_onnxruntime_gives(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            found = difference([*MAKERS].index(name) + k * len(MAKERS))
            assert found is None, found
