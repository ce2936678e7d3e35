"""``summary``: a model's modules with shapes, parameters, operations and memory, as a table and as data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tracecomp.base.html import table
from tracecomp.compiled.function import trace
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.inspect.text_report import size
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.op import Pointwise, Reduced
from tracecomp.record.pytree import flatten


@dataclass(frozen=True)
class ModuleRow:
    """One call of a module.

    ``parameters`` counts its own and its children's, ``trainable`` those of them that require grad. ``operations`` are
    scalar operations of the call (two for a multiply-add), ``output_bytes`` the size of its results.
    """

    path: str
    kind: str
    depth: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    parameters: int
    trainable: int
    operations: int
    output_bytes: int


@dataclass(frozen=True)
class Summary:
    """The calls of a model's modules in the order in which they begin; the first row is the model."""

    rows: tuple[ModuleRow, ...]
    parameter_bytes: int
    activation_bytes: int

    @property
    def parameters(self) -> int:
        return self.rows[0].parameters

    @property
    def operations(self) -> int:
        return self.rows[0].operations

    _HEAD = ("parameters", "MFLOP", "output", "module")

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for r in self.rows:
            shape = ", ".join(str(list(s)) for s in r.outputs)
            name = f"{'  ' * r.depth}{r.path.rpartition('.')[2] or 'model'} ({r.kind})"
            yield f"{r.parameters:,}", f"{r.operations / 1e6:,.2f}", shape, name

    def _totals(self) -> str:
        first = self.rows[0]
        fixed = first.parameters - first.trainable
        return (
            f"{first.parameters:,} parameters{f', {fixed:,} of them fixed' if fixed else ''}, "
            f"{size(self.parameter_bytes)}; {first.operations / 1e6:,.1f} MFLOP a call; "
            f"outputs of all modules {size(self.activation_bytes)}"
        )

    def __str__(self) -> str:
        rows = [self._HEAD, *self._cells()]
        widths = [max(len(r[n]) for r in rows) for n in range(3)]
        lines = [f"{r[0]:>{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:<{widths[2]}}  {r[3]}" for r in rows]
        return "\n".join([*lines, self._totals()])

    def _repr_html_(self) -> str:
        return f"{table(self._HEAD, list(self._cells()), numbers=2)}<p>{self._totals()}</p>"


def summary(model: Any, *args: Any, **kwargs: Any) -> Summary:
    """Summarize ``model(*args, **kwargs)`` module by module.

    The call is made twice, in evaluation mode and without gradients, so it changes no state. CaptureError if it cannot
    be recorded, which is needed to count operations.

    >>> import tracecomp
    >>> net = tracecomp.nn.Sequential(tracecomp.nn.Linear(8, 4), tracecomp.nn.ReLU())
    >>> found = tracecomp.summary(net, tracecomp.ones(2, 8))
    >>> [(row.path, row.outputs, row.parameters) for row in found.rows]
    [('', ((2, 4),), 36), ('0', ((2, 4),), 36), ('1', ((2, 4),), 0)]
    """
    with _evaluating(model), no_grad():
        calls = _calls(model, args, kwargs)
        operations = _operations(trace(model, *args, **kwargs), {path for path, _ in model.named_modules()})
    rows = tuple(
        ModuleRow(
            path=path,
            kind=type(module).__name__,
            depth=path.count(".") + 1 if path else 0,
            inputs=tuple(tuple(t.shape) for t in given),
            outputs=tuple(tuple(t.shape) for t in made),
            parameters=sum(p.numel() for p in module.parameters()),
            trainable=sum(p.numel() for p in module.parameters() if p.requires_grad),
            operations=sum(n for name, n in operations.items() if not path or f"{name}.".startswith(f"{path}.")),
            output_bytes=sum(t._data.nbytes for t in made),
        )
        for path, module, given, made in calls
    )
    return Summary(rows, sum(p._data.nbytes for p in model.parameters()), sum(r.output_bytes for r in rows[1:]))


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Set all modules to evaluation mode, and restore their modes."""
    before = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def _calls(model: Any, args: Any, kwargs: Any) -> list[tuple[str, Any, list[Tensor], list[Tensor]]]:
    """Every call of a module: path, module, input and output tensors, in the order in which they begin."""
    found: list[tuple[str, Any, list[Tensor], list[Tensor]]] = []
    open_calls: list[int] = []

    def begins(path: str) -> Any:
        def hook(module: object, given: object) -> None:
            open_calls.append(len(found))
            found.append((path, module, _tensors(given), []))

        return hook

    def ends(module: object, given: object, made: object) -> None:
        found[open_calls.pop()][3].extend(_tensors(made))

    hooks = []
    for path, module in model.named_modules():
        hooks += [module.register_forward_pre_hook(begins(path)), module.register_forward_hook(ends)]
    try:
        model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _tensors(value: object) -> list[Tensor]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return [x for x in leaves if isinstance(x, Tensor)]


def _operations(graph: Graph, paths: set[str]) -> dict[str, int]:
    """Scalar operations by their module."""
    found: dict[str, int] = {}
    for node in graph.live_nodes():
        origin = graph.origin.get(node)
        path = ""
        for part in origin.scope[1:] if origin else ():
            path = f"{path}.{part}" if path else part
            if path not in paths:
                path = path.rpartition(".")[0]
                break
        found[path] = found.get(path, 0) + _operations_of(node)
    return found


def _operations_of(node: Node) -> int:
    """Scalar operations of a node, two for a multiply-add; none for data movement."""
    out = prod(node.outputs[0].shape)
    if node.op.name == "contract":
        operands, _, _ = node.attrs["spec"].partition("->")
        sizes: dict[str, int] = {}
        for labels, value in zip(operands.split(","), node.inputs, strict=True):
            sizes.update(zip(labels, value.shape, strict=True))
        return 2 * prod(sizes.values())
    if node.op.name in ("conv", "conv_transpose"):
        weight = node.inputs[1].shape
        return 2 * (out if node.op.name == "conv" else prod(node.inputs[0].shape)) * prod(weight[1:])
    if node.op.name in ("scan", "while_loop"):
        bodies = [b for b in node.attrs.values() if isinstance(b, Graph)]
        return int(node.attrs.get("length", 1)) * sum(_operations_of(n) for b in bodies for n in b.live_nodes())
    if isinstance(node.op.loop, Pointwise) and node.op.name != "cast":
        return out
    return prod(node.inputs[0].shape) if isinstance(node.op.loop, Reduced) else 0
