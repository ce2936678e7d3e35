"""Interpreter: runs a graph node by node. Transformer: makes another graph of it on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracecomp.fx.graph import Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.node import Argument, Node, Target, map_arg
from tracecomp.fx.proxy import Proxy
from tracecomp.fx.tracer import Tracer
from tracecomp.nn.module import Module


class Interpreter:
    """Runs the nodes of a module's graph. Subclasses say otherwise what a kind of node does.

    Example:
        >>> import tracecomp as torch
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        >>> torch.fx.Interpreter(traced).run(torch.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node.all_input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The value of the output for these arguments; ``initial_env`` holds values that are known already."""
        self.env = dict(initial_env or {})
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:  # of whatever a node calls; it is raised again, with a note
                error.add_note(f"While executing {node.format_node()}")
                raise
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, ()):
                    self.env.pop(used, None)
            if node.op == "output":
                found = self.env[node]
                return self.graph.process_outputs(found) if enable_io_processing else found
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """As ``run``, with arguments in a list that is emptied, so that they can be let go of."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        """The value of a node, by the method named after its kind."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        """The next argument; RuntimeError when there is none and no default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute at a path of the module; RuntimeError if it does not exist."""
        place: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(place, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            place = getattr(place, part)
        return place

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """A node's arguments with values for nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Arguments with values for nodes; RuntimeError when one has none yet."""

        def value(arg: Node) -> Any:
            if arg not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {arg}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[arg]

        return map_arg(args, value)


class _Continuing(Tracer):
    """Makes nodes in a new graph; modules are found by their names in the old one."""

    def __init__(self, graph: Graph, module: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, module

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Runs a graph on proxies, so that what its methods do becomes another graph."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Continuing(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Proxy:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        found = super().run(enable_io_processing=False)
        old = self.graph.output_node()
        output = self.new_graph.output(map_arg_of_proxies(found))
        output.type, output.meta = old.type, dict(old.meta)
        return GraphModule(self.module, self.new_graph)


def map_arg_of_proxies(value: object) -> Argument:
    """Nested values with nodes for proxies."""
    if isinstance(value, Proxy):
        return value.node
    if isinstance(value, tuple | list):
        parts = [map_arg_of_proxies(x) for x in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {k: map_arg_of_proxies(v) for k, v in value.items()}
    return value
