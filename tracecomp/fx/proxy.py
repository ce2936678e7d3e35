"""Proxy: represents a value while a program is traced, and records every operation as a node."""

from __future__ import annotations

import dis
import enum
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, cast

from tracecomp.eager.tensor import Tensor
from tracecomp.fx.codegen import REFLECTED, magic_methods
from tracecomp.fx.graph import Graph
from tracecomp.fx.immutable_collections import immutable_dict, immutable_list
from tracecomp.fx.node import Argument, Node, Target, base_types

Fn = Callable[..., Any]


class TraceError(ValueError):
    """Raised for operations that a graph cannot express."""


class TracerBase:
    """Makes nodes of operations on proxies."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    root: Any = None

    def create_node(
        self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """Return the proxy of ``node``."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[object, ...], kwargs: dict[str, object], name: str | None = None,
        type_expr: Any = None, proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """Create a node with these arguments, which may be or contain proxies; return its proxy."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """``a`` as an argument of a node; NotImplementedError for what cannot be one."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        # Containers are copied, immutable if possible: a node's arguments must not change later.
        if isinstance(a, tuple):
            parts = [self.create_arg(x) for x in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        if isinstance(a, list):
            return immutable_list([self.create_arg(x) for x in a])
        if isinstance(a, dict):
            return immutable_dict((k, self.create_arg(v)) for k, v in a.items())
        if isinstance(a, slice):
            return slice(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, base_types) or a is None or a is ... or isinstance(a, enum.Enum) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a value that is not known: TraceError."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Any) -> Iterator[Any]:
        """The parts of a value: as many as the program unpacks; TraceError where it does not say how many."""
        frame = inspect.currentframe()
        caller = None if frame is None or frame.f_back is None else frame.f_back.f_back
        count = _unpacked(caller)
        if count is not None:
            return (obj[i] for i in range(count))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy "
            "iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """Called by ``**obj``: return a proxy of the keys."""
        return Attribute(obj, "keys")()


def _unpacked(frame: FrameType | None) -> int | None:
    """How many parts the instruction that runs in ``frame`` unpacks."""
    if frame is None:
        return None
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that there is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Proxy of the value of ``node``: operations on it become nodes of the tracer's graph."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(cast("Graph", node.graph)) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        return Attribute(self, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, object]) -> Proxy:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Fn, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        """Record a function call on proxies as a node."""
        kwargs = kwargs or {}
        found: dict[int, TracerBase] = {}
        _tracers_in((args, kwargs), found)
        if len(found) > 1:
            raise RuntimeError("Found multiple different tracers in the arguments of one function")
        tracer = next(iter(found.values()))
        if getattr(Tensor, getattr(orig_method, "__name__", ""), None) is orig_method and not _is_public(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


def _tracers_in(a: object, found: dict[int, TracerBase]) -> None:
    if isinstance(a, Proxy):
        found[id(a.tracer)] = a.tracer
    elif isinstance(a, tuple | list):
        for x in a:
            _tracers_in(x, found)
    elif isinstance(a, dict):
        for x in a.values():
            _tracers_in(x, found)
    elif isinstance(a, slice):
        _tracers_in((a.start, a.stop, a.step), found)


def _is_public(fn: Fn) -> bool:
    """Whether a method is a function ``torch.name`` too."""
    return getattr(sys.modules["tracecomp"], fn.__name__, None) is fn


class Attribute(Proxy):
    """An attribute of a value: a method's call is one node, and reading it is one only when it is used otherwise."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr = root, attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Proxy of a parameter, whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, dim: int | None = None) -> Any:
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _operation(name: str, reflected: bool = False) -> Fn:
    target = getattr(operator, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        proxy = args[0]
        operands = (args[1], args[0]) if reflected else args
        return proxy.tracer.create_proxy("call_function", target, operands, kwargs)

    return run


for _name in magic_methods:
    setattr(Proxy, f"__{_name.strip('_')}__", _operation(_name))
for _name in REFLECTED:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operation(_name, reflected=True))
for _name in ("__setitem__", "__contains__", "__index__", "__int__", "__float__"):

    def _impossible(self: Proxy, *args: Any, _name: str = _name) -> Any:
        raise TraceError(f"{_name} of a traced value cannot be recorded in a graph")

    setattr(Proxy, _name, _impossible)
