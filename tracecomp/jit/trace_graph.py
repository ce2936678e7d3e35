"""The graph of a call as tools that count operations read it: ``torch.jit._get_trace_graph``.

A node is one call of a public function, in the order of the calls, with the name of PyTorch's operator
(``aten::linear``). Arguments follow the operator's schema where it has their names. The graph is a description: it
cannot run. ``torch.jit.trace`` makes graphs that run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracecomp._C import tracing
from tracecomp.base.errors import type_name
from tracecomp.eager.overrides import TorchFunctionMode
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import type_word
from tracecomp.library import ops
from tracecomp.record.pytree import flatten

_SCALARS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "NoneType"}
_INPUTS = ("self", "indices")
"""Names in schemas of what functions call ``input``."""
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


class ValueType:
    """The type of a value, with the sizes of tensors in the traced call."""

    def __init__(self, value: object) -> None:
        self._tensor = value.detach() if isinstance(value, Tensor) else None
        self._requires_grad = isinstance(value, Tensor) and value.requires_grad
        self._name = "Tensor" if self._tensor is not None else _name_of(value)

    def kind(self) -> str:
        """``TensorType``, ``IntType``, ``ListType``, ..."""
        if self._name.endswith("[]"):
            return "ListType"
        return {"str": "StringType", "NoneType": "NoneType"}.get(self._name, f"{self._name.capitalize()}Type")

    def sizes(self) -> list[int] | None:
        """The shape of a tensor."""
        return None if self._tensor is None else list(self._tensor.shape)

    def strides(self) -> list[int] | None:
        """The strides of a tensor."""
        return None if self._tensor is None else list(self._tensor.stride())

    def dim(self) -> int | None:
        """The number of dimensions of a tensor."""
        return None if self._tensor is None else self._tensor.ndim

    def scalarType(self) -> str | None:
        """The word of a tensor's dtype, as in ``Float``."""
        return None if self._tensor is None else type_word(self._tensor.dtype)

    def __str__(self) -> str:
        return self._name

    def described(self) -> str:
        """The type in a printed graph."""
        if self._tensor is None:
            return self._name
        sizes = "".join(f"{n}, " for n in self.sizes() or ())
        rest = f"strides={self.strides()}, requires_grad={int(self._requires_grad)}, device=cpu"
        return f"{self.scalarType()}({sizes}{rest})"


def _name_of(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"{_name_of(value[0]) if value else 'int'}[]" if not isinstance(value[:1], str) else "str"
    return "Tensor" if isinstance(value, Tensor) else _SCALARS.get(type(value), type(value).__name__)


class Value:
    """An input of the graph or a result of a node."""

    def __init__(self, name: str, node: Node, value: object) -> None:
        self._name, self._node, self._value, self._type = name, node, value, ValueType(value)

    def debugName(self) -> str:
        """The name in the printed graph."""
        return self._name

    def unique(self) -> int:
        """The number in the printed graph."""
        return int(self._name)

    def node(self) -> Node:
        """The node that computes it."""
        return self._node

    def type(self) -> ValueType:
        """Its type."""
        return self._type

    def isCompleteTensor(self) -> bool:
        """Whether it is a tensor, whose sizes are then known."""
        return isinstance(self._value, Tensor)

    def requires_grad(self) -> bool:
        """Whether gradients reach it."""
        return self._type._requires_grad

    def toIValue(self) -> Any:
        """The value of a constant; None for results of other nodes."""
        return self._value if self._node.kind() == "prim::Constant" else None


class Node:
    """One call of an operator, a constant, or a list of other values."""

    def __init__(self, kind: str, inputs: Sequence[Value], scope: str) -> None:
        self._kind, self._inputs, self._scope = kind, list(inputs), scope
        self._outputs: list[Value] = []

    def kind(self) -> str:
        """The operator, as in ``aten::linear``."""
        return self._kind

    def scopeName(self) -> str:
        """The names that were pushed to the tracing state, joined by slashes."""
        return self._scope

    def inputs(self) -> Iterator[Value]:
        """The operands."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        """The results."""
        return iter(self._outputs)

    def output(self) -> Value:
        """The only result."""
        (only,) = self._outputs
        return only

    def inputsSize(self) -> int:
        return len(self._inputs)

    def outputsSize(self) -> int:
        return len(self._outputs)

    def attributeNames(self) -> list[str]:
        """``value`` for a constant."""
        return ["value"] if self._kind == "prim::Constant" else []

    def __str__(self) -> str:
        results = ", ".join(f"%{v.debugName()} : {v.type().described()}" for v in self._outputs)
        value = f"[value={self._outputs[0].toIValue()!r}]" if self._kind == "prim::Constant" else ""
        return f"{results} = {self._kind}{value}({', '.join(f'%{v.debugName()}' for v in self._inputs)})"


class TraceGraph:
    """The inputs, nodes and results of a traced call."""

    def __init__(self) -> None:
        self._param = Node("prim::Param", (), "")
        self._nodes: list[Node] = []
        self._results: list[Value] = []

    def inputs(self) -> Iterator[Value]:
        """The tensors among the arguments, and then those of the module's state."""
        return self._param.outputs()

    def outputs(self) -> Iterator[Value]:
        """The results."""
        return iter(self._results)

    def nodes(self) -> Iterator[Node]:
        """The nodes, in the order of the calls."""
        return iter(self._nodes)

    def __str__(self) -> str:
        inputs = ",\n      ".join(f"%{v.debugName()} : {v.type().described()}" for v in self.inputs())
        lines = "".join(f"  {node}\n" for node in self._nodes)
        return f"graph({inputs}):\n{lines}  return ({', '.join(f'%{v.debugName()}' for v in self._results)})\n"


class Tracer(TorchFunctionMode):
    """Adds a node for every call of a public function; also the tracing state, to which tools push scopes."""

    def __init__(self) -> None:
        self.graph = TraceGraph()
        self._values: dict[int, Value] = {}
        self._held: list[object] = []
        self._scopes: list[str] = []
        self._count = 0

    def push_scope(self, name: str) -> None:
        """Begin a scope."""
        self._scopes.append(name)

    def pop_scope(self) -> None:
        """End the innermost scope."""
        self._scopes.pop()

    def result(self, node: Node, value: object) -> Value:
        """Return a new result of ``node``, and note its tensor."""
        made = Value(str(self._count), node, value)
        self._count += 1
        node._outputs.append(made)
        if isinstance(value, Tensor):
            self._values[id(value)] = made
            self._held.append(value)  # no other tensor gets its id
        return made

    def operand(self, value: object) -> Value:
        """Return the value of a tensor, or a new constant or list of values."""
        if isinstance(value, Tensor) and id(value) in self._values:
            return self._values[id(value)]
        if isinstance(value, list | tuple) and value:
            return self.result(self.add("prim::ListConstruct", [self.operand(x) for x in value]), value)
        return self.result(self.add("prim::Constant", ()), value)

    def add(self, kind: str, inputs: Sequence[Value]) -> Node:
        """A new node in the present scope."""
        node = Node(kind, inputs, "/".join(self._scopes))
        self.graph._nodes.append(node)
        return node

    def __torch_function__(
        self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        given = kwargs or {}
        before = len(self.graph._nodes)
        name = getattr(func, "__name__", "")
        kind, ordered = _as_operator(name, func, args, given)
        operands = [self.operand(x) for x in ordered]
        result = func(*args, **given)
        results = [x for x in _leaves(result) if isinstance(x, Tensor)]
        if not results:
            del self.graph._nodes[before:]  # a question, as that of a shape
            return result
        node = self.add(kind, operands)
        for x in results:
            self.result(node, x)
        return result


def _as_operator(
    name: str, func: Any, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[str, Sequence[object]]:
    """The operator's name, and the arguments in the order of its schema if that has all their names."""
    try:
        bound = inspect.signature(inspect.unwrap(func)).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return f"aten::{name}", [*args, *kwargs.values()]
    bound.apply_defaults()
    named: dict[str, Any] = dict(bound.arguments)
    if name in _CONVOLUTIONS and not isinstance(named.get("padding"), str):
        return "aten::_convolution", _convolution(named, int(name[4]))
    schema = getattr(ops.aten, name).default._schema
    declared = ["input" if a.name in _INPUTS and "input" in named else a.name for a in schema.arguments]
    if declared and set(declared) <= named.keys():
        return f"aten::{name}", [named[x] for x in declared]
    return f"aten::{name}", [x for value in bound.args for x in [value]] + list(bound.kwargs.values())


def _convolution(named: Mapping[str, Any], n: int) -> list[object]:
    """The operands of ``aten::_convolution``, which PyTorch traces for all convolutions."""

    def sizes(key: str) -> list[int]:
        value = named[key]
        return [value] * n if isinstance(value, int) else list(value)

    operands = [named["input"], named["weight"], named["bias"], sizes("stride"), sizes("padding"), sizes("dilation")]
    return [*operands, False, [0] * n, named["groups"], False, False, True, True]


def _leaves(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return [x for part in value for x in _leaves(part)]
    return [value]


def get_trace_graph(f: Any, args: Any, kwargs: Mapping[str, object], return_inputs: bool) -> tuple[Any, ...]:
    """``(graph, result)`` of one call of a module or function, and the arguments with ``return_inputs``."""
    if not callable(f):
        raise RuntimeError(f"_get_trace_graph(): f must be a module or a function, not {type_name(f)}")
    given = args if isinstance(args, tuple) else (args,)
    tracer, leaves = Tracer(), list[Any]()
    flatten((given, dict(kwargs)), leaves)
    state = f.state_dict(keep_vars=True).values() if hasattr(f, "state_dict") else ()
    for x in (*leaves, *state):
        if isinstance(x, Tensor):
            tracer.result(tracer.graph._param, x)
    tracing.append(tracer)
    try:
        with tracer:
            out = f(*given, **kwargs)
    finally:
        tracing.pop()
    found: list[Any] = []
    flatten(out, found)
    tracer.graph._results = [tracer.operand(x) for x in found]
    return (tracer.graph, out, given) if return_inputs else (tracer.graph, out)
