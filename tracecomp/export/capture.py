"""From a module to a graph: it runs once, recorded as compiled functions are, and every operator is written down.

The recording knows which sizes and values the run depended on; ``make_fx`` (``fx/experimental``) knows the operators.
"""

from __future__ import annotations

import linecache
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracecomp._dynamo.exc import UserError, UserErrorType
from tracecomp._subclasses.fake_tensor import FakeTensorMode
from tracecomp.base.errors import CaptureError, Source, user_source
from tracecomp.eager.modes import modes, records_history
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.export.dynamic_shapes import Constraint
from tracecomp.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from tracecomp.export.same import same_graphs
from tracecomp.export.sizes import OpenSizes
from tracecomp.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from tracecomp.fx.graph import Graph
from tracecomp.fx.node import Node
from tracecomp.library import ops
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.record.capture import Refusal, record
from tracecomp.record.recording import Recording, Repeated
from tracecomp.record.results import Plain
from tracecomp.record.size_forms import Atom, Form
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import Named, SizeSource, Varying
from tracecomp.record.symbolic.sym_int import SymInt, forms
from tracecomp.utils._pytree import TreeSpec, tree_flatten, tree_unflatten


@dataclass
class Captured:
    """A module as a graph, its signature, its state and constants by name, and what its sizes have to be."""

    graph: Graph
    signature: ExportGraphSignature
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    sizes: OpenSizes
    out_spec: TreeSpec


def capture(
    module: Module, args: tuple[object, ...], kwargs: dict[str, object], names: Sequence[str], where: Sequence[str],
    open_sizes: Sequence[Constraint], decompositions: Mapping[object, object],
) -> Captured:  # fmt: skip
    """Capture ``module`` as it runs on these arguments; leaves are called ``names`` in the graph, ``where`` in
    messages.

    UserError for programs that a graph cannot express, and for requested dynamic sizes that must be static.
    """
    leaves, in_spec = tree_flatten((args, kwargs))
    varying, sizes = _varying(leaves, open_sizes, where)
    writer = _Writer(module, names, decompositions, sizes)
    found = _recorded(writer, leaves, in_spec, varying)
    _check_whole(found, leaves)
    made = writer.captured()
    if isinstance(found, Recording) and sizes.sizes:

        def again(values: Sequence[int]) -> Conditions | None:
            """Return the conditions of a run with these sizes; None if it writes another graph."""
            other = _Writer(module, names, decompositions, sizes)
            try:
                resized = sizes.resized(leaves, values)
                seen = _recorded(other, resized, in_spec, varying)
                _check_whole(seen, resized)
            except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
                return None  # the program does not run at these sizes, or is none
            same = same_graphs(made.graph, other.captured().graph, values)
            return seen.sizes.conditions if same and isinstance(seen, Recording) and seen.sizes else None

        clear = found.sizes.conditions if found.sizes else sizes.elsewhere(again)
        sizes.learn(clear or writer.fixed_conditions(), where, again)
    return made


def _recorded(writer: _Writer, leaves: Sequence[Any], in_spec: TreeSpec, varying: Varying) -> Recording | Refusal:
    """The recording of a run; random numbers, buffers and attributes that are tensors are left as they were."""
    random = default_generator.get_state()
    attributes = [
        (space, name, value) for m in writer.module.modules() for space in (vars(m), m._buffers)
        for name, value in space.items() if isinstance(value, Tensor)
    ]  # fmt: skip
    kept = [(t, t.detach().clone()) for t in _state(writer.module).values() if not isinstance(t, Parameter)]
    name = type(writer.module).__name__
    try:
        return record(
            lambda *flat: writer.run(tree_unflatten(flat, in_spec)), tuple(leaves), {}, name, derive=False,
            varying=varying,
        )[1]  # fmt: skip
    except CaptureError as error:
        raise UserError(UserErrorType.ANTI_PATTERN, f"export: {error}") from error
    finally:
        default_generator.set_state(random)
        for space, name, value in attributes:
            space[name] = value
        for t, before in kept:
            t.data.copy_(before)


def _varying(
    leaves: Sequence[Any], open_sizes: Sequence[Constraint], where: Sequence[str]
) -> tuple[Varying, OpenSizes]:
    """The axes to follow, by name, and the sizes behind the names, which the recording numbers in the same order."""
    varying, sizes = Varying(), OpenSizes()
    for leaf, axis, dim in sorted(open_sizes, key=lambda c: (c.argument, c.axis)):
        place = sizes.add(leaf, axis, dim, leaves[leaf].shape[axis], f"{where[leaf]}.size()[{axis}]")
        if place is not None:
            name = sizes.sizes[sizes.number(place)].symbol
            varying.named[SizeSource(("argument", leaf), axis)] = Named(name, place.factor, place.offset)
    return varying, sizes


def _check_whole(found: Recording | Refusal, leaves: Sequence[object]) -> None:
    """UserError for what a graph of operators leaves out."""
    if isinstance(found, Refusal):
        raise UserError(UserErrorType.ANTI_PATTERN, f"export: {found.reason}")
    for seen in found.predicates:
        raise UserError(
            UserErrorType.DYNAMIC_CONTROL_FLOW,
            "Could not guard on data-dependent expression: the program needs the value "
            f"{seen.seen!r} of a tensor at {seen.source}{_line(seen.source)}. A graph has one path: use torch.where.",
        )
    for effect in found.effects:
        if not all(isinstance(r, Plain) for r in effect.results) and not _sets_buffer(effect, leaves):
            what = [repr(r.value) for r in effect.results if isinstance(r, Plain)][:1]
            raise _kept(f"the attribute or item {what[0]} of an object" if what else "an object")
    if not all(isinstance(r, Plain) for b in found.rebound for r in b.results):
        raise _kept("an object")


def _sets_buffer(effect: Repeated, leaves: Sequence[object]) -> bool:
    """Whether the effect sets a registered buffer, as ``self.n += 1`` does: the graph writes to it."""
    if effect.owner is None or len(effect.results) != 2:
        return False
    owner, name = effect.owner.now((tuple(leaves), {})), effect.results[0]
    return isinstance(owner, Module) and isinstance(name, Plain) and name.value in owner._buffers


def _kept(where: str) -> UserError:
    return UserError(
        UserErrorType.ANTI_PATTERN, f"export: the program keeps a tensor in {where}. Register a buffer for it "
        "and write to that in place."
    )  # fmt: skip


def _line(source: Source | None) -> str:
    text = linecache.getline(source.file, source.line).strip() if source else ""
    return f" ({text})" if text else ""


def _state(module: Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, shared ones by each of their names."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return dict(named)


class _Writer(ProxyTorchDispatchMode):
    """Writes the graph of one run: its inputs first, then its nodes."""

    def __init__(
        self, module: Module, names: Sequence[str], decompositions: Mapping[Any, Any],
        sizes: OpenSizes,
    ) -> None:  # fmt: skip
        super().__init__(Graph(), Module(), decompositions)
        self.module, self.sizes, self._names = module, sizes, names
        self._inputs: list[InputSpec] = []
        self._outputs: list[OutputSpec] = []
        self._constants: dict[str, Tensor] = {}
        self._size_nodes: dict[Form, Node] = {}
        self._user: list[Node] = []
        self._grad = modes.grad
        self._out_spec: TreeSpec | None = None
        self._conditions = Conditions()

    # ---- inputs

    def run(self, given: tuple[tuple[object, ...], dict[str, Any]]) -> Any:
        """The module's result; the graph is written."""
        self._conditions = modes.recorder.conditions
        self._state_inputs()
        flat, _ = tree_flatten(given)
        for name, value in zip(self._names, flat, strict=True):
            node = self._placeholder(name, value)
            self._user.append(node)
            arg: ArgumentSpec = TensorArgument(node.name)
            if not isinstance(value, Tensor):
                arg = ConstantArgument(node.name, value)
            self._inputs.append(InputSpec(InputKind.USER_INPUT, arg, None))
        args, kwargs = given
        with self:
            before = _state(self.module)
            result = self.module(*args, **kwargs)
            flat, self._out_spec = tree_flatten(result)
            self._write_new_buffers(before, flat)
        self._write_outputs(flat)
        return result

    def _placeholder(self, name: str, value: object) -> Node:
        node = self.graph.placeholder(name)
        if isinstance(value, Tensor):
            self.bind(value, node)
        return node

    def _state_inputs(self) -> None:
        hidden = {
            f"{path}.{n}".lstrip(".") for path, m in self.module.named_modules() for n in m._non_persistent_buffers_set
        }
        for target, t in _state(self.module).items():
            kept = isinstance(t, Parameter)
            node = self._placeholder(f"{'p' if kept else 'b'}_{target.replace('.', '_')}", t)
            kind = InputKind.PARAMETER if kept else InputKind.BUFFER
            self._inputs.append(
                InputSpec(kind, TensorArgument(node.name), target, None if kept else target not in hidden)
            )

    def from_outside(self, value: Tensor) -> Node:
        """A tensor that the program brings along is an input too; a size follows from the arguments."""
        for number, t in modes.recorder.sizes.tensors.items():
            if t is value or t._data is value._data:
                return self._call(ops.aten.scalar_tensor.default, (self._size(number),), {"dtype": value.dtype})
        target = self._path(value) or f"lifted_tensor_{len(self._constants)}"
        self._constants[target] = value
        first = self._user[0] if self._user else None
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(f"c_{target.replace('.', '_')}")
        at = len(self._inputs) - len(self._user)
        self._inputs.insert(at, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target))
        return node

    def _path(self, value: Tensor) -> str | None:
        """The path of a tensor that is an attribute."""
        for path, module in self.module.named_modules():
            for name, found in vars(module).items():
                if found is value:
                    return f"{path}.{name}".lstrip(".")
        return None

    # ---- operators

    def node_of(self, value: object) -> Any:
        """The graph's node or constant for ``value``."""
        if type(value) is SymInt and value.live:
            return self._formula(value.form)
        if isinstance(value, tuple) and any(type(x) is SymInt for x in value):  # a Size is a leaf to ``tree_map``
            return tuple(map(self.node_of, value))
        return super().node_of(value)

    def bind(self, value: object, node: Node) -> None:
        """``value``, a tensor or several, is the result of ``node``."""
        source = user_source()
        if source is not None and node.op == "call_function":
            node.meta["stack_trace"] = f'  File "{source.file}", line {source.line}, in {source.function}\n'
        if isinstance(value, Tensor):
            node.meta["extents"] = extents = forms(tuple(value.shape))
            node.meta["shape"] = tuple(n if isinstance(n, int) else self.sizes.formula(n) for n in extents)
        super().bind(value, node)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        cut = self._grad and not records_history() and not func._schema.is_mutable
        if cut and isinstance(result, Tensor) and result.dtype.differentiable:
            # The program computes this under ``no_grad``: no gradient goes through it in the graph either.
            self.bind(result, self._call(ops.aten.detach.default, (self.node_of(result),)))
        return result

    def _call(self, func: Any, args: tuple[object, ...], kwargs: dict[str, object] | None = None) -> Node:
        name = func.overloadpacket.__name__
        return self.graph.create_node("call_function", func, args, kwargs or {}, name=name)

    def _number(self, func: Any, args: tuple[object, ...], form: Form | None = None) -> Node:
        """A node that computes with sizes; one that operators may take knows its formula."""
        name = getattr(func, "overloadpacket", func).__name__
        node = self.graph.create_node("call_function", func, args, name=name)
        node.meta["size"] = form
        return node

    def _formula(self, form: Form) -> Any:
        """The node of a size that follows from others."""
        if form.is_constant:
            return form.at(())
        if form not in self._size_nodes:
            total: Any = None
            for term, factor in form.terms:
                part: Any = None
                for x in [*map(self._atom, term), *([factor] if factor != 1 or not term else [])]:
                    part = x if part is None else self._number(operator.mul, (part, x))
                total = part if total is None else self._number(operator.add, (total, part))
            total.meta["size"] = form
            self._size_nodes[form] = total
        return self._size_nodes[form]

    def _atom(self, atom: Atom) -> Any:
        if isinstance(atom, int):
            return self._size(atom)
        return self._number(operator.floordiv, (self._formula(atom.of), atom.by))

    def _size(self, number: int) -> Node:
        """The node of a size of the arguments."""
        form = Form.of_size(number)
        if form not in self._size_nodes:
            leaf, axis, factor, offset = min(self.sizes.sizes[number].places, key=lambda p: (p.factor, p.offset))
            node = self._number(ops.aten.sym_size.int, (self._user[leaf], axis))
            if offset:
                node = self._number(operator.sub, (node, offset))
            if factor != 1:
                node = self._number(operator.floordiv, (node, factor))
            node.meta["size"] = form
            self._size_nodes[form] = node
        return self._size_nodes[form]

    # ---- results

    def _write_new_buffers(self, before: Mapping[str, Tensor], flat: Sequence[object]) -> None:
        """Copy what the program has set as buffers into those that it was given."""
        after, storages = _state(self.module), [t._storage for t in before.values()]
        for name, old in before.items():
            new = after.get(name)
            if new is old or isinstance(old, Parameter):
                continue
            if new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
                raise _kept(f"the buffer {name!r}, which had a different shape or dtype")
            # After the call, eager code has two tensors here, and the graph has one.
            if new._storage in storages or any(isinstance(x, Tensor) and x._storage is old._storage for x in flat):
                raise _kept(f"the buffer {name!r} while one of both tensors is also in use elsewhere")
            ops.aten.copy_.default(old, new)

    def _write_outputs(self, flat: Sequence[Any]) -> None:
        found = [self.node_of(x) for x in flat]
        self.graph.output(tuple(found))
        for value, node in zip(flat, found, strict=True):
            arg: ArgumentSpec = ConstantArgument("", value)
            if isinstance(node, Node):
                arg = TensorArgument(node.name) if isinstance(value, Tensor) else SymIntArgument(node.name)
            self._outputs.append(OutputSpec(OutputKind.USER_OUTPUT, arg, None))

    def captured(self) -> Captured:
        """Return the graph, without unused nodes and without the tensors of the run."""
        assert self._out_spec is not None
        fake = FakeTensorMode()
        self.graph.eliminate_dead_code()
        for node in self.graph.nodes:
            if isinstance(node.meta.get("val"), Tensor):
                node.meta["val"] = fake.from_tensor(node.meta["val"])
        state = {s.target: t for s, t in self._with_tensors() if s.target}
        return Captured(
            self.graph, ExportGraphSignature(self._inputs, self._outputs), state, self._constants, self.sizes,
            self._out_spec,
        )  # fmt: skip

    def fixed_conditions(self) -> Conditions:
        """The conditions of the run, for its own sizes only."""
        for held in self._conditions.ranges:
            held.fix()
        return self._conditions

    def _with_tensors(self) -> Iterator[tuple[InputSpec, Tensor]]:
        named = _state(self.module)
        for spec in self._inputs:
            if spec.target in named:
                yield spec, named[spec.target]
