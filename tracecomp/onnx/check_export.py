"""Comparison of exported models with their recordings: onnxruntime runs them; the first differing node is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

from tracecomp.eager.modes import no_grad
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.graph import Graph
from tracecomp.ir.values import Value
from tracecomp.onnx.errors import OnnxExporterError, UnsupportedError
from tracecomp.onnx.module import load
from tracecomp.utils._pytree import tree_leaves

Array = np.ndarray[Any, Any]
_RELATIVE = 1e-3
"""Tolerance for libraries' own orders of summation; export errors are larger."""


def check_results(proto: Any, graph: Graph, args: Sequence[object], results: Any, written: Sequence[str]) -> None:
    """OnnxExporterError names the first node whose result differs in the model, run by onnxruntime.

    ``written`` are the names of the results of the graph's nodes, in order. Without onnxruntime, the model runs as
    imported by ``load``.
    """
    given = [a._data for a in args if isinstance(a, Tensor)]
    wanted = [r._data for r in tree_leaves(results)]
    if any(a.dtype.kind == "V" for a in [*given, *wanted]):
        return  # numpy has no bfloat16, and onnxruntime few operators for it
    with no_grad():
        found = _run(proto, [o.name for o in proto.graph.output], given)
    if all(map(_comparison(graph), found, wanted)):
        return
    raise OnnxExporterError(
        f"onnx.export(): the results of onnxruntime differ, first at {_first(proto, graph, given, written)}"
    )


def check_path(proto: Any, graph: Graph, sizes: Mapping[str, int], args: Sequence[object], results: object) -> None:
    """UnsupportedError unless the model gives ``results`` for ``args``, whose dynamic sizes are ``sizes``.

    The program may decide by its sizes: ``graph`` is one of its paths.
    """
    given = [a._data for a in args if isinstance(a, Tensor)]
    wanted = [r._data for r in tree_leaves(results) if isinstance(r, Tensor)]
    if any(a.dtype.kind == "V" for a in [*given, *wanted]):
        return
    try:
        with no_grad():
            found = _run(proto, [o.name for o in proto.graph.output], given)
    except Exception as error:  # onnxruntime's errors have no common type
        why = f"the graph fails there: {str(error).strip().splitlines()[-1][:200]}"
    else:
        if all(map(_comparison(graph), found, wanted)):
            return
        why = "its results differ there"
    raise UnsupportedError(
        f"onnx.export(): the program depends on an input size. At {', '.join(f'{k}={n}' for k, n in sizes.items())} it "
        f"takes a different path from the recorded one ({why}). Exclude these sizes by the range of a Dim, as in "
        f"Dim({next(iter(sizes))!r}, min=2), or use torch.cond"
    )


def _comparison(graph: Graph) -> Callable[[Array, Array], bool]:
    """Return the comparison for results of ``graph``: random ones must agree in shape and dtype only."""
    return _alike if any(n.op.name == "random_bits" for n in graph.live_nodes()) else _close


def _run(proto: Any, names: Sequence[str], given: Sequence[Array]) -> list[Array]:
    if find_spec("onnxruntime") is None:
        return _run_here(proto, given)
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common type
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        return _run_here(proto, given)  # it has no kernels for some types (half ones, short integers)
    inputs = dict(zip([i.name for i in session.get_inputs()], given, strict=True))
    found: list[Array] = session.run([*names], inputs)
    return found


def _run_here(proto: object, given: Sequence[Array]) -> list[Array]:
    """The results of the model as imported by ``load``. The random state is restored."""
    random = default_generator.get_state()
    try:
        loaded = load(proto)(*map(T.from_numpy, given))
    finally:
        default_generator.set_state(random)
    return [t.numpy() for t in (loaded if isinstance(loaded, tuple) else (loaded,))]


def _first(proto: Any, graph: Graph, given: Sequence[Array], written: Sequence[str]) -> str:
    """The first node that differs, with every node's result as an output."""
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    made = {name for node in proto.graph.node for name in node.output}
    names = [n for n in dict.fromkeys(written) if n in made]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    found = dict(zip(names, _run(shown, names, given), strict=True))
    # The graph has parameters as inputs, the file as initializers: both sides are given the file's.
    values: dict[Value, Any] = {}
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in proto.graph.initializer}
    open_inputs = [i for i in graph.inputs if i.role != "constant"]
    fed = [weights[i.name] if i.role == "state" else None for i in open_inputs]
    rest = iter(given)
    arrays = [next(rest) if f is None else f for f in fed]
    graph.interpret(*arrays, observer=lambda node, outs: values.update(zip(node.outputs, outs, strict=True)))
    for node, name in zip(graph.live_nodes(), written, strict=True):
        if name in found and not _close(found[name], values[node.outputs[0]]):
            origin = graph.origin.get(node)
            line = f" ({origin.source})" if origin and origin.source else ""
            return f"{node.op.name} {name!r}{line}"
    return "an output"


def _alike(a: Array, b: object) -> bool:
    """Whether they are of one type: random numbers are others each time."""
    wanted: Array = np.asarray(b)
    return a.shape == wanted.shape and bool(a.dtype == wanted.dtype)


def _close(a: Array, b: object) -> bool:
    b = np.asarray(b)
    if not _alike(a, b):
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0))
    return bool(np.allclose(a, b, _RELATIVE, _RELATIVE * scale, equal_nan=True))
