"""Graph: the steps of a function in order, as what ``fx`` traces, changes and writes as Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tracecomp.fx.codegen import CodeGen, PythonCode, generate, inplace_methods, magic_methods
from tracecomp.fx.namespace import Namespace, snake_case
from tracecomp.fx.node import Argument, GraphBase, Node, Target, _side_effectful_functions, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode", "inplace_methods", "magic_methods"]


class _NodeList:
    """The nodes of a graph in order, as they are when they are reached."""

    def __init__(self, graph: Graph, reverse: bool = False) -> None:
        self.graph, self.reverse = graph, reverse

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.reverse else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.reverse else node._next

    def __reversed__(self) -> _NodeList:
        return _NodeList(self.graph, not self.reverse)


class _Inserting:
    """The insertion point of new nodes, until the end of a block or permanently."""

    def __init__(self, graph: Graph, place: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self.graph._insert = self.before


class Graph(GraphBase):
    """Nodes in the order in which they run.

    Example:
        >>> import tracecomp as torch
        >>> graph = torch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.output(graph.call_function(torch.relu, (x,)))
        >>> print(graph)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
            return relu
    """

    def __init__(
        self, owning_module: object = None, tracer_cls: object = None, tracer_extras: dict[str, Any] | None = None
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._names = Namespace()
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    # ---- what there is

    @property
    def nodes(self) -> Any:
        """The nodes in order; ``reversed`` gives them from the end."""
        return _NodeList(self)

    def position(self, node: Node) -> int:
        return list(self.nodes).index(node)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Nodes of one kind; of calls of functions those of ``target``."""
        if op == "call_function" and target is None:
            raise AssertionError("target must be provided when op is 'call_function'")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        """The node of the returned value."""
        return self.find_nodes(op="output")[-1]

    # ---- making nodes

    def create_node(
        self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node where nodes are inserted at present: at the end, unless said otherwise."""
        if not isinstance(args or (), tuple):
            raise AssertionError(f"Expected args to be tuple, got {type(args)}")
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(self, "", op, target, args or (), kwargs or {}, type_expr)
        node.name = self._names.create_name(candidate, node if name is None else None)
        if name is not None:
            self._names.associate(node.name, node)
        owner = self.owning_module
        if owner is not None and getattr(owner, "_create_node_hooks", None):
            for hook in owner._create_node_hooks:
                hook(node)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Target) -> str:
        if callable(target):
            name = getattr(target, "__name__", type(target).__name__)
        else:
            name = target[2:-2] if target.startswith("__") and target.endswith("__") else target
        return snake_case(name.replace(".", "_"))

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An argument of the function."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A call of the submodule at ``module_name``."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Argument, ...] | None = None, kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A call of the method ``method_name`` of ``args[0]``."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Set the returned value."""
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy of a node of another graph; ``arg_transform`` gives the nodes here for those there."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("arg_transform must keep the tuple of arguments and the dict of keyword arguments")
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy the nodes of ``g`` here; what its output returns, in terms of nodes here."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, object]) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = made
        made._codegen = copy.deepcopy(self._codegen, memo)
        known: dict[Node, Node] = {}
        found = made.graph_copy(self, known, return_output_node=True)
        if found is not None:
            output = made.output(found[0], type_expr=found[1].type)
            output.meta = copy.copy(found[1].meta)
        return made

    # ---- where nodes are made, and unmade

    def inserting_before(self, n: Node | None = None) -> _Inserting:
        """Nodes are made in front of ``n``, or at the beginning: in a ``with`` block, or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _Inserting(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _Inserting:
        """Nodes are made right behind ``n``, or at the end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _Inserting(self, n.append)

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node; RuntimeError while others use it."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        owner = self.owning_module
        if owner is not None and getattr(owner, "_erase_node_hooks", None):
            for hook in owner._erase_node_hooks:
                hook(to_erase)
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase.args, to_erase.kwargs = (), {}

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove unused nodes without side effects; return whether any was removed."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        gone = False
        for node in reversed(self.nodes):
            if not impure(node) and not node.users:
                self.erase_node(node)
                gone = True
        return gone

    def lint(self) -> None:
        """RuntimeError when a node uses a later one, two have one name, or the module lacks a target."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' does not belong to this Graph!")
                if used not in seen:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' was used before it has been defined!")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module"):
                    self._check_path(node)

    def _check_path(self, node: Node) -> None:
        place, path = self.owning_module, str(node.target)
        for part in path.split("."):
            if not hasattr(place, part):
                raise RuntimeError(f"Node {node} target {path} references nonexistent attribute {part} of {place}")
            place = getattr(place, part)

    # ---- as text

    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """The source of a function that does the same; ``root_module`` is its name for the module."""
        return generate(self.nodes, root_module, self._codegen)

    def set_codegen(self, codegen: CodeGen) -> None:
        """How this graph is written from now on."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]) -> Any:
        """Have a function edit the lines of the body; ``make_transformer`` gets the one before it."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        graph = self

        class _Until:
            def __enter__(self) -> None:
                return None

            def __exit__(self, *error: object) -> None:
                graph._codegen._body_transformer = before

        return _Until()

    def print_tabular(self) -> None:
        """Print the nodes as a table; needs the package ``tabulate``."""
        try:
            from tabulate import tabulate  # type: ignore[import-untyped]
        except ImportError:
            print("`print_tabular` relies on the library `tabulate`, which could not be found on this machine. Run "
                  "`pip install tabulate` to install the library.")  # fmt: skip
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def __str__(self) -> str:
        arguments: list[str] = []
        lines = [n.format_node(arguments) for n in self.nodes]
        shown = [n.format_node() if text is None else text for n, text in zip(self.nodes, lines, strict=True)]
        return "graph():" + "".join(f"\n    {line}" for line in shown)

    def process_inputs(self, *args: Any) -> Any:
        """Arguments as values of the placeholders."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The output's value as the result."""
        return self._codegen.process_outputs(out)


_side_effectful_functions.add(print)
