"""An ONNX model as a module: it has parameters, prints as Python, trains, and can be compiled."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

import numpy as np

from tracecomp.eager.modes import no_grad, unrecorded
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.onnx import bodies, rules
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.onnx.model import GraphRecord, Model, Node, owned, read
from tracecomp.onnx.registry import RULES, Call, Value

Array = np.ndarray[Any, Any]

__all__ = ["OnnxModule", "load", "rules"]

_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")
)
"""Operators whose results are not known, though all their operands are."""
_SHORT = 8
"""Numbers that are printed where they are read."""
_BUFFERS = frozenset(("BatchNormalization",))


class OnnxModule(Module):
    """The graph of an ONNX model. Call it with its inputs in order, or by name; weights that are floats are parameters.

    ``training`` affects operators with such a mode (Dropout, BatchNormalization with ``training_mode``), as the model
    sets it; ``train_mode=True`` at load time restores their behaviour in training.
    """

    def __init__(self, model: Model, train_mode: bool = False) -> None:
        super().__init__()
        self._model = model
        self._train_mode = train_mode
        self._static: dict[str, Array] = {}
        self._names: dict[str, str] = {}
        self._take_weights(model.graph)
        self._plan = bodies.inlined(model)
        _check(self._plan)
        _check_order(self._plan, {"", *model.graph.weights})

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [*self._model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs, in order."""
        return [*self._model.graph.outputs]

    def forward(self, *args: Any, **named: Any) -> Any:
        """The outputs: one, or a tuple of several. TypeError when inputs are missing or not known."""
        given = dict(zip(self.input_names, args, strict=False)) | named
        left = [n for n in self.input_names if n not in given and not self._is_optional(n)]
        if left or len(args) > len(self.input_names) or given.keys() - {*self.input_names}:
            wanted = ", ".join(self.input_names) or "nothing"
            raise TypeError(f"the model takes {wanted}; got {', '.join(given) or 'nothing'}")
        known: dict[str, Value] = {"": None}
        known.update({n: given.get(n) for n in self.input_names})
        known.update({name: getattr(self, attribute) for name, attribute in self._names.items()})
        known.update(self._static)
        found = self._run(self._plan, known)
        outputs = tuple(map(_tensor, found))
        return outputs[0] if len(outputs) == 1 else outputs

    def extra_repr(self) -> str:
        """The program, as Python."""
        return self.code

    @property
    def code(self) -> str:
        """The model as lines of Python: every operator is a call, weights are attributes of ``self``."""
        return "\n".join(_Text(self._names, self._static).lines(self._plan))

    # ---- building

    def _take_weights(self, graph: GraphRecord) -> None:
        moving = {n for node in graph.nodes if node.op in _BUFFERS for n in node.inputs[3:5]} | graph.buffers
        for name, array in graph.weights.items():
            if array.dtype.kind not in "fV" or array.dtype.name not in ("float16", "float32", "float64", "bfloat16"):
                self._static[name] = array
                continue
            attribute = self._attribute(name)
            tensor = wrap(owned(array))  # no other writer, so values derived from it are computed once
            if name in moving:
                self.register_buffer(attribute, tensor)
            else:
                self.register_parameter(attribute, Parameter(tensor))
            self._names[name] = attribute

    def _attribute(self, name: str) -> str:
        """A name for ``self.``: like the weight's, and not taken."""
        stem = re.sub(r"\W", "_", name) or "weight"
        stem = f"w{stem}" if stem[0].isdigit() or hasattr(type(self), stem) else stem
        taken = {*self._names.values()}
        names = chain([stem], (f"{stem}_{k}" for k in count(2)))
        return next(name for name in names if name not in taken)

    def _is_optional(self, name: str) -> bool:
        kind = self._model.graph.types.get(name)
        return kind is not None and kind.HasField("optional_type")

    # ---- running

    def _run(self, graph: GraphRecord, known: dict[str, Value]) -> list[Value]:
        last = Counter(n for node in graph.nodes for n in node.inputs)
        bodies = [b for node in graph.nodes for b in node.attrs.values() if isinstance(b, GraphRecord)]
        kept = {"", *graph.outputs, *self._names, *self._static, *[n for b in bodies for n in b.captured()]}
        for node in graph.nodes:
            known.update(zip(node.outputs, self._result(node, known), strict=False))
            for name in node.inputs:  # free values without later readers
                last[name] -= 1
                if not last[name] and name not in kept:
                    known.pop(name, None)
        return [known[name] for name in graph.outputs]

    def _body(self, body: GraphRecord, args: Sequence[Value], call: Call) -> list[Value]:
        """Run the body of a control operator, which sees the values around it. ValueError where the model has none."""
        if not isinstance(body, GraphRecord):
            raise ValueError(f"{call.node.op} ({call.node.name or ', '.join(call.node.outputs)}) has no body")
        weights = {name: _constant(array) for name, array in body.weights.items()}
        known = {**call.outer, **weights, **dict(zip(body.inputs, args, strict=True)), "": None}
        return self._run(body, known)

    def _result(self, node: Node, known: dict[str, Value]) -> Sequence[Value]:
        rule = RULES[node.domain, node.op]
        opset = self._model.opsets.get(node.domain, 1)
        call = Call(node, opset, self._body, known, self.training and self._train_mode, self._model.small)
        operands = [known[name] for name in node.inputs]
        if node.op not in _RANDOM and not rule.raw and all(v is None or isinstance(v, np.ndarray) for v in operands):
            with unrecorded(), no_grad():
                return [_array(v) for v in _tuple(rule.run(call, *_operands(operands, rule.static)))]
        if rule.raw:
            return _tuple(rule.run(call, *operands))
        return _tuple(rule.run(call, *_operands(operands, rule.static)))


def load(source: str | os.PathLike[str] | bytes | Any, *, train_mode: bool = False) -> OnnxModule:
    """Load the ONNX model in a file, in bytes, or of protobuf, as a module.

    UnsupportedError names every operator that cannot be run; ValueError describes a damaged file, or data outside its
    folder. ``train_mode``: Dropout and BatchNormalization follow ``module.train()`` again, though the model was
    exported for inference.
    """
    try:
        return OnnxModule(read(source), train_mode)
    except (UnsupportedError, OSError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        # Any effect of a changed byte: names that are not text, attributes of other kinds, cycles.
        raise ValueError(f"the model is damaged: {type(error).__name__}: {error}") from error


def _check(graph: GraphRecord) -> None:
    absent = [n for n in graph.walk() if (n.domain, n.op) not in RULES]
    missing = Counter(f"{n.domain}::{n.op}" if n.domain else n.op for n in absent)
    if missing:
        told = ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in missing.items())
        raise UnsupportedError(f"the model has operators that tracecomp does not run: {told}")


def _check_order(graph: GraphRecord, known: set[str]) -> None:
    """ValueError for a value that is read and not computed before."""
    known = {*known, *graph.inputs, *graph.weights}
    for node in graph.nodes:
        for body in node.attrs.values():
            if isinstance(body, GraphRecord):
                _check_order(body, known)
        _check_known(node.inputs, known, f"{node.op} ({node.name or ', '.join(node.outputs)})")
        known.update(node.outputs)
    _check_known(graph.outputs, known, "the graph's result")


def _check_known(names: Sequence[str], known: set[str], who: str) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"the model is damaged: {who} reads {missing[0]!r}, which no earlier operator computes")


def _operands(values: Sequence[Value], static: frozenset[int]) -> list[Value]:
    return [_static(v) if k in static else _tensor(v) for k, v in enumerate(values)]


def _tuple(found: object) -> Sequence[Value]:
    return found if isinstance(found, tuple) else (found,)


def _constant(array: Array) -> Value:
    return array if array.dtype.kind not in "fV" else T.from_numpy(np.array(array))


def _tensor(value: Value) -> Value:
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU":
        return T.from_numpy(np.array(value))
    return [_tensor(v) for v in value] if isinstance(value, list) else value


def _static(value: Value) -> Value:
    """A value as an array; for a tensor its current contents, which a recording takes for control flow."""
    if isinstance(value, Tensor):
        return np.array(value.tolist(), value.detach().dtype.numpy).reshape(tuple(value.shape))
    return value


def _array(value: Value) -> Value:
    if isinstance(value, Tensor):
        return value.detach().resolve_conj().numpy().copy()
    return [_array(v) for v in value] if isinstance(value, list) else value


class _Text:
    """Writes a model as Python."""

    def __init__(self, names: Mapping[str, str], static: Mapping[str, Array]) -> None:
        self.names = {name: f"self.{attribute}" for name, attribute in names.items()}
        self.static = static
        self.taken: set[str] = set()

    def lines(self, graph: GraphRecord, indent: str = "") -> list[str]:
        """``def`` line, one line for each operator, ``return`` line."""
        found = [f"{indent}def forward({', '.join(map(self.name, graph.inputs))}):"]
        for node in graph.nodes:
            held = node.attrs.get("value") if node.op == "Constant" else None
            if isinstance(held, np.ndarray) and held.size <= _SHORT:
                self.names[node.outputs[0]] = self.shown(held)
                continue
            results = ", ".join(self.name(n) if n else "_" for n in node.outputs)
            operands = [self.name(n) if n else "None" for n in node.inputs]
            while operands and operands[-1] == "None":
                operands.pop()
            attrs = [f"{k}={self.shown(v)}" for k, v in node.attrs.items()]
            found.append(f"{indent}    {results} = {node.op}({', '.join([*operands, *attrs])})")
        return [*found, f"{indent}    return {', '.join(map(self.name, graph.outputs))}"]

    def name(self, value: str) -> str:
        if value in self.static:
            return self.shown(self.static[value])
        if value not in self.names:
            stem = re.sub(r"\W", "_", value).strip("_") or "x"
            stem = f"x{stem}" if stem[0].isdigit() else stem
            while stem in self.taken:
                stem += "_"
            self.taken.add(stem)
            self.names[value] = stem
        return self.names[value]

    def shown(self, value: object) -> str:
        if isinstance(value, np.ndarray):
            return repr(value.tolist()) if value.size <= _SHORT else f"<{value.dtype.name}{[*value.shape]}>"
        return f"<graph of {len(value.nodes)} operators>" if isinstance(value, GraphRecord) else repr(value)
