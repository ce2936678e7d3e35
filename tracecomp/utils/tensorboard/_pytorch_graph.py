"""The graph of a model in TensorBoard's form: a node for each input, parameter, function called, and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.versions_pb2 import VersionDef

from tracecomp.eager.modes import no_grad
from tracecomp.eager.overrides import TorchFunctionMode
from tracecomp.eager.tensor import Tensor
from tracecomp.utils._pytree import tree_leaves
from tracecomp.utils.tensorboard._proto_graph import node_proto

__all__ = ["graph"]
_PRODUCER = 22
"""The version of GraphDef that TensorBoard expects of PyTorch."""


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class _Nodes(TorchFunctionMode):
    """Makes a node of every function that is called, in the scope of the module that runs."""

    def __init__(self, model: Any) -> None:
        self.root = type(model).__name__
        self.scopes = [self.root]
        self.nodes: list[Any] = []
        self.names: dict[int, str] = {}
        self.kept: list[Tensor] = []  # alive, so that no identity is used twice
        self.parameters = {id(x): name for name, x in (*model.named_parameters(), *model.named_buffers())}
        self.paths = {id(module): name for name, module in model.named_modules()}
        self.modules = dict(model.named_modules())

    def add(self, name: str, op: str, inputs: Sequence[Tensor], result: Tensor | None, attributes: str = "") -> None:
        shape = None if result is None else list(result.shape)
        sources = [self.name_of(x) for x in inputs]
        self.nodes.append(node_proto(name, op=op, input=sources, outputsize=shape, attributes=attributes))
        if result is not None:
            self.names[id(result)] = name
            self.kept.append(result)

    def name_of(self, x: Tensor) -> str:
        """The node that computed ``x``; a new one for a parameter, and for a tensor from outside."""
        if id(x) not in self.names:
            path = self.parameters.get(id(x))
            if path is None:
                self.add(f"{self.root}/constant_{len(self.nodes)}", "prim::Constant", (), x)
            else:
                self.add(f"{self.scope_of(path)}/{path.rpartition('.')[2]}", "prim::GetAttr", (), x)
        return self.names[id(x)]

    def scope_of(self, path: str) -> str:
        """``Net/Sequential[block]/Conv2d[0]`` for the parameter ``block.0.weight``."""
        parts = path.split(".")[:-1]
        owners = [".".join(parts[: i + 1]) for i in range(len(parts))]
        return "/".join((self.root, *(self.label(owner) for owner in owners)))

    def label(self, path: str) -> str:
        return f"{type(self.modules[path]).__name__}[{path.rpartition('.')[2]}]"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        sources = _tensors((args, kwargs))
        for made in _tensors(result):
            name = f"{self.scopes[-1]}/{func.__name__}_{len(self.nodes)}"
            self.add(name, f"aten::{func.__name__}", sources, made)
        return result

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the modules of the model say when they begin and end."""
        with ExitStack() as stack:
            for path, module in self.modules.items():
                if path:
                    stack.callback(module.register_forward_pre_hook(self._enter).remove)
                    stack.callback(module.register_forward_hook(self._leave, always_call=True).remove)
            stack.enter_context(self)
            yield

    def _enter(self, module: object, args: object) -> None:
        self.scopes.append(f"{self.scopes[-1]}/{self.label(self.paths[id(module)])}")

    def _leave(self, module: object, args: object, result: object) -> None:
        self.scopes.pop()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was)


def graph(model: Any, args: object, verbose: bool = False, use_strict_trace: bool = True) -> tuple[Any, Any]:
    """Run ``model`` once in evaluation mode and describe its operations.

    Args:
        model: a module.
        args: its argument, or a tuple of several.
        verbose: whether the nodes are printed.
        use_strict_trace: ignored: containers may be changed while the model runs.

    Returns:
        The graph, and an empty record of the time it took.
    """
    given = args if isinstance(args, tuple) else (args,)
    nodes = _Nodes(model)
    for i, x in enumerate(_tensors(given)):
        nodes.add(f"input/x.{i + 1}", "IO Node", (), x)
    with _evaluating(model), no_grad(), nodes.running():
        result = model(*given)
    for i, y in enumerate(_tensors(result)):
        shape = list(y.shape)
        nodes.nodes.append(
            node_proto(f"output/output.{i + 1}", op="IO Node", input=[nodes.name_of(y)], outputsize=shape)
        )
    if verbose:
        print(nodes.nodes)
    steps = RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))
    return GraphDef(node=nodes.nodes, versions=VersionDef(producer=_PRODUCER)), steps
