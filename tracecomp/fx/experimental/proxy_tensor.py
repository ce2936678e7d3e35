"""``make_fx``: runs a function and writes down, as an fx graph, the operators that arrive below autograd."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tracecomp._subclasses.fake_tensor import FakeTensorMode
from tracecomp.eager.tensor import Tensor
from tracecomp.fx.graph import Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.node import Node
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from tracecomp.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["get_proxy_mode", "make_fx"]

Fn = Callable[..., Any]


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Writes every operator into ``graph``. Tensors from outside become attributes of ``root``."""

    def __init__(self, graph: Graph, root: Module, decompositions: Mapping[Any, Fn]) -> None:
        self.graph, self.root, self._decompositions = graph, root, decompositions
        self._known: dict[int, tuple[Tensor, Node]] = {}
        self._arrays: list[Any] = []

    def bind(self, value: object, node: Node) -> None:
        """``value``, a tensor or several, is what ``node`` gives."""
        if isinstance(value, Tensor):
            node.meta["val"] = value
            # Both are referenced, so that their ids stay unique. Autograd keeps a result as another tensor over the
            # same array.
            self._known[id(value)] = self._known[id(value._data)] = value, node
            self._arrays.append(value._data)
        elif isinstance(value, tuple | list):
            for i, part in enumerate(value):
                self.bind(part, self.graph.call_function(operator.getitem, (node, i)))

    def node_of(self, value: object) -> Any:
        """The graph's node or constant for ``value``."""
        if not isinstance(value, Tensor):
            return value
        found = self._known.get(id(value)) or self._known.get(id(value._data))
        if found is None:
            found = value, self.from_outside(value)
            self.bind(*found)
        return found[1]

    def from_outside(self, value: Tensor) -> Node:
        """The node of a tensor that is not an argument."""
        kind = "_param_constant" if isinstance(value, Parameter) else "_tensor_constant"
        name = next(f"{kind}{i}" for i in range(len(self._known) + 1) if not hasattr(self.root, f"{kind}{i}"))
        if isinstance(value, Parameter):
            self.root.register_parameter(name, value)
        else:
            self.root.register_buffer(name, value)
        return self.graph.get_attr(name)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        if func in self._decompositions:
            with self:
                return self._decompositions[func](*args, **(kwargs or {}))
        given_args, given_kwargs = tree_map(self.node_of, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.bind(result, self.graph.create_node("call_function", func, given_args, given_kwargs, name=name))
        return result


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode that writes a graph now."""
    stack = _get_current_dispatch_mode_stack()
    return next((m for m in reversed(stack) if isinstance(m, ProxyTorchDispatchMode)), None)


def make_fx(
    f: Fn, decomposition_table: Mapping[Any, Fn] | None = None, tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False, **options: Any,
) -> Fn:  # fmt: skip
    """A function that runs ``f`` on its arguments and gives the GraphModule of the operators of ``torch.ops`` that ran.

    Backward passes inside of ``f`` too. ``decomposition_table`` maps operators to functions that are to run in their
    place. ``tracing_mode``: "real", or "fake" and "symbolic", with tensors without elements; sizes stay those of the
    arguments in each. ValueError for another. The graph holds for the values of Python that were met.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp.fx.experimental.proxy_tensor import make_fx
        >>> print(make_fx(lambda x: x.sin().exp())(torch.ones(2)).code.strip())
        def forward(self, x_1):
            sin = torch.ops.aten.sin.default(x_1);  x_1 = None
            exp = torch.ops.aten.exp.default(sin);  sin = None
            return exp
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"Unexpected tracing type: {tracing_mode}")

    def traced(*args: Any) -> GraphModule:
        flat, structure = tree_flatten(args)
        if tracing_mode != "real":
            fake = FakeTensorMode()
            with fake:
                flat = [fake.from_tensor(x) if isinstance(x, Tensor) else x for x in flat]
                return _traced(f, flat, structure, decomposition_table or {})
        return _traced(f, flat, structure, decomposition_table or {})

    return traced


def _traced(f: Fn, flat: list[Any], structure: Any, decompositions: Mapping[object, Fn]) -> GraphModule:
    root, graph = Module(), Graph()
    mode = ProxyTorchDispatchMode(graph, root, decompositions)
    for name, value in zip(_names(f, structure, len(flat)), flat, strict=True):
        mode.bind(value, graph.placeholder(f"{name}_1"))
    with mode:
        result = f(*tree_unflatten(flat, structure))
    graph.output(tree_map(mode.node_of, result))
    return GraphModule(root, graph, getattr(f, "__name__", type(f).__name__))


def _names(f: Fn, structure: Any, count: int) -> list[str]:
    """The names of the parameters of ``f``, where each takes one value."""
    try:
        kinds = inspect.signature(f).parameters.values()
    except ValueError:
        kinds = {}.values()  # a builtin
    found = [p.name for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    plain = len(found) == count and all(child.is_leaf() for child in structure.children())
    return found if plain else [f"arg{i}" for i in range(count)]
