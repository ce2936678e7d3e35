"""Node: one step of an ``fx`` graph, and the walk over the nested arguments that nodes have."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, TypeAlias, cast

from tracecomp.base.code_origin import torch_name
from tracecomp.eager.device import device, layout, memory_format
from tracecomp.eager.tensor import Tensor
from tracecomp.fx.immutable_collections import immutable_dict, immutable_list
from tracecomp.ir.types import DType

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any
base_types = (str, int, float, bool, complex, DType, Tensor, device, memory_format, layout)
_side_effectful_functions: set[Callable[..., Any]] = set()
_LEGAL_OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")


def has_side_effect(fn: Callable[..., object]) -> Callable[..., Any]:
    """``fn``, whose calls dead code elimination keeps from now on."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """``fn`` of everything in nested tuples, lists, dictionaries and slices."""
    if isinstance(a, tuple):
        mapped = [map_aggregate(x, fn) for x in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """``fn`` of every node in nested arguments."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _is_exported(value: object, name: str) -> bool:
    return getattr(sys.modules["tracecomp"], name, None) is value


def qualified_name(fn: object) -> str:
    """The import path of a function, such as ``torch.relu``."""
    own = str(getattr(fn, "__name__", ""))
    if getattr(builtins, own, None) is fn:
        return own
    if isinstance(fn, BuiltinFunctionType | MethodDescriptorType) and not getattr(fn, "__module__", None):
        owner = getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
        return f"{getattr(owner, '__module__', 'builtins')}.{getattr(owner, '__name__', '')}.{fn.__name__}"
    name = getattr(fn, "__name__", type(fn).__name__)
    if _is_exported(fn, name):
        return f"torch.{name}"
    if name == "<lambda>":
        name = "lambda"
    return f"{torch_name(fn.__module__).replace('torch._ops.', 'torch.ops.')}.{name}"


def type_repr(kind: object) -> str:
    """A type as source text."""
    if isinstance(kind, type) and not hasattr(kind, "__origin__"):
        if kind.__module__ == "builtins" or _is_exported(kind, kind.__qualname__):
            return kind.__qualname__ if kind.__module__ == "builtins" else f"torch.{kind.__qualname__}"
        return f"{torch_name(kind.__module__)}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    return repr(kind)


class GraphBase:
    """The interface of a graph for its nodes."""

    owning_module: Any = None

    def position(self, node: Node) -> int:
        """The number of ``node`` in order."""
        raise NotImplementedError


class Node:
    """One step: its operation (``op``, ``target``), operands (``args``, ``kwargs``), and users."""

    def __init__(
        self, graph: GraphBase, name: str, op: str, target: Target, args: tuple[Argument, ...],
        kwargs: dict[str, Argument], return_type: Any = None,
    ) -> None:  # fmt: skip
        if op not in _LEGAL_OPS:
            raise AssertionError(f"op '{op}' is not one of {_LEGAL_OPS}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is "
                "expected"
            )
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self.meta: dict[str, Any] = {}
        self._set_inputs(map_aggregate(args, lambda x: x), map_aggregate(kwargs, lambda x: x))

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn is not None else self.name

    def __lt__(self, other: Node) -> bool:
        return self.graph.position(self) < self.graph.position(other)

    # ---- the place in the graph

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` in front of this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move ``x`` behind this node."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # ---- arguments and users

    @property
    def args(self) -> tuple[Argument, ...]:
        return self._args

    @args.setter
    def args(self, value: tuple[Argument, ...]) -> None:
        self._set_inputs(map_aggregate(value, lambda x: x), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._set_inputs(self._args, map_aggregate(value, lambda x: x))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def _set_inputs(self, args: object, kwargs: object) -> None:
        if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
            raise AssertionError("the arguments of a node are a tuple and a dict")
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = cast("tuple[Argument, ...]", args), kwargs, {}
        map_arg((args, kwargs), lambda n: self._input_nodes.setdefault(n))
        for new in self._input_nodes:
            new.users.setdefault(self)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace the positional argument ``idx``."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put ``arg`` in front of the positional argument ``idx``."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace the keyword argument ``key``."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use ``new_input`` wherever ``old_input`` is used here."""

        def swap(n: Node) -> Node:
            return new_input if n is old_input else n

        self._set_inputs(map_arg(self.args, swap), map_arg(self.kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
        propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """Have all users, or those for which ``delete_user_cb`` holds, use ``replace_with``; these users."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        users = [user for user in list(self.users) if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    # ---- properties

    @property
    def stack_trace(self) -> str | None:
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it has effects other than its result, so that it stays even if unused."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            schema = getattr(self.target, "_schema", None)  # an operator's: the name of its overload says nothing
            writes = getattr(schema, "is_mutable", False) or (name.endswith("_") and not name.endswith("__"))
            return self.target in _side_effectful_functions or writes
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        if self.op == "call_module":
            owner = self.graph.owning_module
            return bool(getattr(owner.get_submodule(self.target), "_is_impure", False)) if owner is not None else True
        return False

    def _pretty_target(self) -> str:
        if isinstance(self.target, str):
            return self.target
        name = getattr(self.target, "__module__", None) and qualified_name(self.target)
        name = f"builtins.{name}" if name and name in vars(builtins) else name
        return (name or repr(self.target)).replace("_operator.", "operator.")

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None
    ) -> str | None:
        """This step as a line; a placeholder's name goes to ``placeholder_names`` where that is given."""
        typed = "" if self.type is None else f"{type_repr(self.type)} "
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}[target={self._pretty_target()}]"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target} : {typed}" if typed else str(self.target))
                return None
            return f"{head}(default={self.args[0]})" if self.args else head
        if self.op == "get_attr":
            return head
        if self.op == "output":
            return f"return {self.args[0]}"
        return f"{head}(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"


def _shown(a: object) -> str:
    if isinstance(a, tuple):
        inner = ", ".join(map(_shown, a))
        return f"({inner},)" if len(a) == 1 else f"({inner})"
    if isinstance(a, list):
        return f"[{', '.join(map(_shown, a))}]"
    if isinstance(a, dict):
        return f"{{{', '.join(f'{k}: {_shown(v)}' for k, v in a.items())}}}"
    return f"%{a}" if isinstance(a, Node) else str(a)
