"""Exported programs: a graph without Python around it, its state, and the calls it is for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tracecomp.eager.tensor import Tensor
from tracecomp.export.capture import capture
from tracecomp.export.dynamic_shapes import Constraint, left_open, named_arguments
from tracecomp.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tracecomp.export.sizes import OpenSizes, ValueRanges
from tracecomp.fx.codegen import CodeGen
from tracecomp.fx.graph import Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.node import Node, map_arg
from tracecomp.library import ops
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.utils._pytree import TreeSpec, keystr, tree_flatten, tree_leaves_with_path, tree_unflatten

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclass
class ModuleCallSignature:
    """How a module is called."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module of the program by its name, the program itself by the empty one."""

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclass
class Interface:
    """The arguments that a program takes: their structure, each leaf's name and value, and sizes that are open."""

    in_spec: TreeSpec
    names: list[str]
    where: list[str]
    shapes: list[tuple[int | None, ...] | None]
    constants: list[Any]
    sizes: OpenSizes = field(default_factory=OpenSizes)

    @staticmethod
    def of(args: tuple[object, ...], kwargs: dict[str, object], parameters: Sequence[str]) -> Interface:
        """The interface of these arguments of a function with ``parameters``; no size is dynamic yet."""
        leaves, in_spec = tree_flatten((args, kwargs))
        names, where = [], []
        for path, _ in tree_leaves_with_path((args, kwargs)):
            first = parameters[path[1].idx] if path[0].idx == 0 else path[1].key
            rest = keystr(path[2:])
            names.append("_".join([first, *_words(rest)]))
            where.append(first + rest)
        shapes: list[Any] = [tuple(x.shape) if isinstance(x, Tensor) else None for x in leaves]
        return Interface(in_spec, names, where, shapes, [None if isinstance(x, Tensor) else x for x in leaves])

    def left_open(self, sizes: OpenSizes) -> None:
        """Take over which sizes are dynamic."""
        self.sizes = sizes
        for place in (p for s in sizes.sizes for p in s.places):
            shape = self.shapes[place.leaf]
            assert shape is not None
            self.shapes[place.leaf] = (*shape[: place.axis], None, *shape[place.axis + 1 :])

    def closed(self, given: object) -> Interface:
        """The same with the sizes of ``given``."""
        shapes: list[Any] = [tuple(x.shape) if isinstance(x, Tensor) else None for x in tree_flatten(given)[0]]
        return Interface(self.in_spec, self.names, self.where, shapes, self.constants)

    def leaves(self, args: tuple[object, ...], kwargs: Mapping[str, object], check: bool = True) -> list[Any]:
        """The leaves of a call. ValueError for another structure, AssertionError where ``check`` finds a wrong leaf."""
        expected = self.in_spec.child(1).context
        if set(kwargs) != set(expected):
            raise ValueError(
                "Ran into a kwarg keyword mismatch: Got the following keywords "
                f"{list(kwargs)} but expected {list(expected)}"
            )
        leaves, spec = tree_flatten((args, {k: kwargs[k] for k in expected}))
        if spec != self.in_spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{self.in_spec}\n"
                f"but actually got inputs with tree spec of: \n{spec}"
            )
        if check:
            for x, shape, constant, name in zip(leaves, self.shapes, self.constants, self.where, strict=True):
                if shape is not None and not isinstance(x, Tensor):
                    raise AssertionError(f"Guard failed: isinstance({name}, torch.Tensor)")
                if shape is None and (type(x) is not type(constant) or x != constant):
                    raise AssertionError(f"Guard failed: {name} == {constant!r}")
            shapes = [x.shape if isinstance(x, Tensor) else None for x in leaves]
            self.sizes.check(shapes, self.shapes, self.where)
        return leaves


def _words(path: str) -> list[str]:
    """The keys in ``[0]['a'].b``."""
    return "".join(c if c.isalnum() or c == "_" else " " for c in path).split()


class _CallCodeGen(CodeGen):
    """Generates a function with the module's arguments and results."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        head = "def forward(self, *args, **kwargs):"
        free = [name for name in free_vars if name != "self"]
        return f"{head}\n    {', '.join(free)}, = self._leaves(args, kwargs)" if free else head


def _result(body: list[str]) -> list[str]:
    last = body[-1].strip()
    return [*body[:-1], f"return self._result({last.removeprefix('return ')})\n"]


class _Unlifted(GraphModule):
    """An exported program as a module with its parameters, called as the module it was made of."""

    _interface: Interface
    _out_spec: TreeSpec
    _check_guards: bool

    def _leaves(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Any]:
        return self._interface.leaves(args, kwargs, self._check_guards)

    def _result(self, flat: Sequence[object]) -> Any:
        return tree_unflatten(list(flat), self._out_spec)

    def train(self, mode: bool = True) -> NoReturn:
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self) -> NoReturn:
        raise NotImplementedError("Calling eval() is not supported yet.")


class ExportedProgram:
    """The result of ``torch.export.export``: a graph of operators of ``torch.ops``, and everything it needs.

    ``graph`` takes parameters, buffers, constants and then the arguments, as listed in ``graph_signature``;
    ``range_constraints`` are the dynamic sizes. ``module()`` returns a callable module.
    """

    def __init__(
        self, graph: Graph, graph_signature: ExportGraphSignature, state: Mapping[str, Tensor],
        constants: Mapping[str, Tensor], interface: Interface, out_spec: TreeSpec, example_inputs: Any,
        fqns: Sequence[str], dialect: str = "TRAINING",
    ) -> None:  # fmt: skip
        self._graph_module = GraphModule({}, graph)
        self._graph_signature, self._state, self._constants = graph_signature, dict(state), dict(constants)
        self._interface, self._out_spec, self._example_inputs = interface, out_spec, example_inputs
        self._fqns, self.dialect = list(fqns), dialect

    @property
    def graph_module(self) -> GraphModule:
        return self._graph_module

    @property
    def graph(self) -> Graph:
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers by name, without copying."""
        hidden = self._graph_signature.non_persistent_buffers
        return {name: t for name, t in self._state.items() if name not in hidden}

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors outside the state, by name: those of attributes, and buffers that are not saved."""
        hidden = self._graph_signature.non_persistent_buffers
        return {**{name: self._state[name] for name in hidden}, **self._constants}

    tensor_constants = constants

    @property
    def example_inputs(self) -> Any:
        """The arguments of the export: a tuple and a dictionary."""
        return self._example_inputs

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        """The range of each dynamic size, by the text of its formula."""
        return self._interface.sizes.ranges()

    @property
    def call_spec(self) -> ModuleCallSignature:
        """How the program is called."""
        signature = self._graph_signature
        return ModuleCallSignature(
            list(signature.user_inputs), list(signature.user_outputs), self._interface.in_spec, self._out_spec
        )

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The program and the modules in it."""
        return [ModuleCallEntry("", self.call_spec), *(ModuleCallEntry(name) for name in self._fqns)]

    def parameters(self) -> Iterator[Parameter]:
        return (t for _, t in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Parameters with the names they had in the module."""
        for name in self._graph_signature.parameters:
            t = self._state[name]
            assert isinstance(t, Parameter)
            yield name, t

    def buffers(self) -> Iterator[Tensor]:
        return (t for _, t in self.named_buffers())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers with the names they had in the module."""
        for name in self._graph_signature.buffers:
            yield name, self._state[name]

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """Return the program as a module that shares the state, called like the original one.

        A call with another structure is a ValueError, one with invalid sizes or constants an AssertionError that names
        them, unless ``check_guards`` is off.
        """
        return _unlifted(self, check_guards)

    def run_decompositions(self, decomp_table: Mapping[object, object] | None = None) -> ExportedProgram:
        """The program with functions of ``decomp_table`` in place of operators, and with writes of buffers as results.

        Graphs have primitive operators from the first (``docs/dispatch.md``), so there is nothing more to take apart.
        """
        args, kwargs = self._example_inputs
        sizes = self._interface.sizes
        new = captured_program(
            self.module(check_guards=False), args, kwargs, self._interface.closed((args, kwargs)), sizes.asked,
            self._fqns, decomp_table or {},
        )  # fmt: skip
        _functional(new)
        return new

    def validate(self) -> None:
        """Check that the graph is complete and agrees with its signature."""
        self.graph.lint()
        names = {n.name for n in self.graph.nodes}
        missing = [s.arg.name for s in self._graph_signature.input_specs if s.arg.name not in names]
        if missing:
            raise RuntimeError(f"the signature names placeholders missing from the graph: {missing}")

    def __str__(self) -> str:
        ranges = ", ".join(f"{name}: {r!r}" for name, r in self.range_constraints.items())
        lines = "\n".join("    " + line for line in _readable(self._graph_module).split("\n"))
        return f"ExportedProgram:\n{lines}\nGraph signature: {self._graph_signature}\nRange constraints: {{{ranges}}}\n"

    __repr__ = __str__


def _readable(module: GraphModule) -> str:
    """The graph as Python, with types of tensors."""
    text = module.print_readable(print_output=False)
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, Tensor):
            shape = ", ".join(map(str, node.meta.get("shape", val.shape)))
            typed = f'{node.name}: "{val.dtype.name}[{shape}]"'
            before = ", " if node.op == "placeholder" else "        "
            after = "" if node.op == "placeholder" else " ="
            text = text.replace(f"{before}{node.name}{after}", f"{before}{typed}{after}", 1)
    return text


def exported(
    module: Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    dynamic_shapes: object,
    decompositions: Mapping[object, object],
) -> ExportedProgram:
    """``module`` as a program; UserError for arguments and sizes that do not go together."""
    named = named_arguments(module, args, kwargs)
    leaves, _ = tree_flatten((args, kwargs))
    open_sizes = list(left_open(named, dynamic_shapes, leaves))
    interface = Interface.of(args, kwargs, _parameters(module, len(args)))
    fqns = [name for name, _ in module.named_modules() if name]
    return captured_program(module, args, kwargs, interface, open_sizes, fqns, decompositions)


def _parameters(module: Module, count: int) -> list[str]:
    """Names of the arguments that are given by position."""
    found: list[str] = []
    for p in inspect.signature(module.forward).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            return found + [f"{p.name}_{k}" for k in range(count - len(found))]
        found.append(p.name)
    return found


def captured_program(
    module: Module, args: tuple[object, ...], kwargs: dict[str, object], interface: Interface,
    open_sizes: Sequence[Constraint], fqns: Sequence[str], decompositions: Mapping[object, object],
) -> ExportedProgram:  # fmt: skip
    """The program that a run of ``module`` gives."""
    found = capture(module, args, kwargs, interface.names, interface.where, open_sizes, decompositions)
    interface.left_open(found.sizes)
    return ExportedProgram(
        found.graph, found.signature, found.state, found.constants, interface, found.out_spec, (args, kwargs), fqns
    )


def default_decompositions() -> dict[Any, Any]:
    """Empty: graphs have primitive operators from the first."""
    return {}


def _functional(program: ExportedProgram) -> None:
    """Make values that the graph writes to buffers its results; writes through views of buffers stay as they are."""
    graph, signature = program.graph, program.graph_signature
    buffers = {n: n for n in graph.nodes if n.name in signature.inputs_to_buffers}
    last: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not ops.aten.copy_.default or node.args[0] not in buffers:
            continue
        target, value = node.args[0], node.args[1]
        if _viewed(target):
            continue
        for user in list(target.users):
            if user is not node and graph.position(user) > graph.position(node):
                user.replace_input_with(target, value)
        node.replace_all_uses_with(value)
        graph.erase_node(node)
        last[target] = value
    if last:
        output = graph.output_node()
        output.args = ((*last.values(), *output.args[0]),)
        signature.output_specs[:0] = [
            OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(value.name), signature.inputs_to_buffers[target.name])
            for target, value in last.items()
        ]
    program.dialect = "ATEN"
    program.graph_module.recompile()


_VIEWS = frozenset(("alias", "view", "transpose", "t", "permute", "expand", "slice", "detach", "windows"))
"""Operators of graphs, aten's and primitive ones, whose results share memory with their operands."""


def _viewed(node: Node) -> bool:
    """Whether the graph has a view of a node's result."""
    return any(getattr(getattr(u.target, "overloadpacket", None), "__name__", "") in _VIEWS for u in node.users)


def _unlifted(program: ExportedProgram, check_guards: bool) -> GraphModule:
    graph = Graph()
    place: dict[Node, Node] = {}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        spec = specs.get(node.name)
        if node.op == "output":
            _write_back(program, graph, place, node)
        elif node.op == "placeholder" and spec is not None and spec.kind is not InputKind.USER_INPUT:
            place[node] = graph.get_attr(str(spec.target))
        else:
            place[node] = graph.node_copy(node, lambda n: place[n])
    _user_inputs_first(graph)
    graph.set_codegen(codegen := _CallCodeGen())
    codegen._body_transformer = _result
    tensors = {**program._state, **program._constants}
    made = _Unlifted(tensors, graph)
    _adopt(made, program)
    made.__dict__.update(_interface=program._interface, _out_spec=program._out_spec, _check_guards=check_guards)
    return made


def _user_inputs_first(graph: Graph) -> None:
    """Move user inputs before the module's state in the placeholders."""
    first = next(n for n in graph.nodes if n.op != "placeholder")
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        first.prepend(node)


def _write_back(program: ExportedProgram, graph: Graph, place: dict[Node, Node], output: Node) -> None:
    """Results that are buffers go there; the others are returned."""
    kept = []
    inputs = {s.target: place[n] for n in program.graph.nodes for s in program.graph_signature.input_specs
              if n.op == "placeholder" and s.arg.name == n.name}  # fmt: skip
    for value, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True):
        found = map_arg(value, lambda n: place[n])
        if spec.kind is OutputKind.BUFFER_MUTATION:
            graph.call_function(ops.aten.copy_.default, (inputs[spec.target], found))
        else:
            kept.append(found)
    graph.output(tuple(kept))


def _adopt(module: Module, program: ExportedProgram) -> None:
    """Give ``module`` all of the state: constants as plain attributes, buffers that are not saved as such."""
    hidden = program.graph_signature.non_persistent_buffers
    for name, t in {**program._state, **program._constants}.items():
        owner: Any = module
        *above, last = name.split(".")
        for part in above:
            if not hasattr(owner, part):
                owner.add_module(part, Module())
            owner = getattr(owner, part)
        owner._buffers.pop(last, None)  # in the order of the state, not in that of their names
        owner._parameters.pop(last, None)
        if name in program._constants:
            object.__setattr__(owner, last, t)
        elif isinstance(t, Parameter):
            owner.register_parameter(last, t)
        else:
            owner.register_buffer(last, t, persistent=name not in hidden)
