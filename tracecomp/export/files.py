"""Exported programs in files: program files of the kind "exported", which hold no code."""

from __future__ import annotations

import operator
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tracecomp.aten import kernels
from tracecomp.compiled.program_files import container
from tracecomp.compiled.program_files.load import FAULTS
from tracecomp.eager.device import device, layout, memory_format
from tracecomp.eager.tensor import Tensor
from tracecomp.export.exported_program import ExportedProgram, Interface
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
from tracecomp.export.sizes import OpenSizes, Place, Size
from tracecomp.fx.graph import Graph
from tracecomp.fx.node import Node
from tracecomp.ir import types
from tracecomp.ir.graph import Graph as ProgramGraph
from tracecomp.ir.op import OPS
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import DType
from tracecomp.jit import guard
from tracecomp.library import OpOverload, ops
from tracecomp.nn.parameter import Parameter
from tracecomp.record.size_forms import Form, Quotient
from tracecomp.utils._pytree import tree_flatten, tree_unflatten, treespec_dumps, treespec_loads
from tracecomp_runtime import tensors
from tracecomp_runtime.container import Container, ProgramError

Json = Any
_SIZES = {f.__name__: f for f in (operator.add, operator.mul, operator.sub, operator.floordiv, operator.getitem)}
_ARGUMENTS = {a.__name__: a for a in (TensorArgument, SymIntArgument)}


def save(program: ExportedProgram, f: Any, extra: Mapping[str, str | bytes]) -> None:
    """Write a program to a path or open file. ValueError for values that no file holds."""
    arrays: dict[str, Any] = {}
    header = _described(program, arrays)
    sections = {f"extra/{n}": x.encode() if isinstance(x, str) else bytes(x) for n, x in extra.items()}
    container.write(f, header, {"tensors": tensors.to_bytes(arrays), **sections})


def load(f: Any, extra: dict[str, Any] | None, name: str | None = None) -> ExportedProgram:
    """Load the program in a file; it can only run operators on tensors. ProgramError for a damaged file.

    Messages call the file ``name``, which is its path by default.
    """
    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "wb") as copy:
                shutil.copyfileobj(f, copy)
            return load(path, extra, getattr(f, "name", "the program file"))
    file = Container(f, name)
    if file.header.get("kind") != "exported":
        raise file.error(f"is of the kind {file.header.get('kind')!r}, which torch.export.load does not read")
    try:
        for name in extra or {}:
            assert extra is not None
            extra[name] = bytes(file.section(f"extra/{name}")).decode()
        return _program(file)
    except ProgramError:
        raise
    except FAULTS as error:
        raise file.error(f"is damaged: {type(error).__name__}: {error}") from error


# ---- writing


def _described(program: ExportedProgram, arrays: dict[str, Any]) -> dict[str, Json]:
    def tensor(t: Tensor) -> str:
        arrays[str(len(arrays))] = t.detach().contiguous()._data
        return str(len(arrays) - 1)

    interface, signature = program._interface, program.graph_signature
    leaves, spec = tree_flatten(program.example_inputs)
    return {
        "kind": "exported", "dialect": program.dialect, "modules": program._fqns,
        "nodes": [_node(n) for n in program.graph.nodes],
        "inputs": [[s.kind.name, _argument(s.arg), s.target, s.persistent] for s in signature.input_specs],
        "outputs": [[s.kind.name, _argument(s.arg), s.target] for s in signature.output_specs],
        "state": [[n, tensor(t), isinstance(t, Parameter), t.requires_grad] for n, t in program._state.items()],
        "constants": [[n, tensor(t)] for n, t in program._constants.items()],
        "examples": [
            treespec_dumps(spec), [{"tensor": tensor(x)} if isinstance(x, Tensor) else _told(x) for x in leaves]
        ],
        "in_spec": treespec_dumps(interface.in_spec), "out_spec": treespec_dumps(program._out_spec),
        "names": interface.names, "where": interface.where, "shapes": interface.shapes,
        "plain": [_told(c) for c in interface.constants], "sizes": _sizes(interface.sizes),
    }  # fmt: skip


def _argument(arg: ArgumentSpec) -> Json:
    value = _told(arg.value) if isinstance(arg, ConstantArgument) else None
    return [type(arg).__name__, arg.name, value]


def _node(node: Node) -> Json:
    target: Any = node.target
    if node.op == "call_function":
        target = str(target) if isinstance(target, OpOverload) else f"operator.{target.__name__}"
        _target(target)
    val = node.meta.get("val")
    shown = [_told(val.dtype), list(node.meta.get("shape", val.shape))] if isinstance(val, Tensor) else None
    return [node.name, node.op, target, _told(node.args), _told(node.kwargs), shown, node.meta.get("stack_trace")]


def _told(x: object) -> Json:
    """A value as JSON: numbers and texts as they are, others with their kind."""
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, Node):
        return {"node": x.name}
    if isinstance(x, dict):
        return {"dict": [[k, _told(v)] for k, v in x.items()]}
    if isinstance(x, tuple | list):
        return {"list" if isinstance(x, list) else "tuple": [_told(v) for v in x]}
    for kind, cls in (("dtype", DType), ("device", device), ("memory_format", memory_format), ("layout", layout)):
        if isinstance(x, cls):
            return {kind: str(x)}
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, slice):
        return {"slice": [_told(x.start), _told(x.stop), _told(x.step)]}
    if isinstance(x, ProgramGraph):
        return {"graph": print_graph(x)}
    raise ValueError(f"an exported program with a value of type {type(x).__name__} cannot be saved")


def _sizes(sizes: OpenSizes) -> Json:
    forms = [[_form(f) for f in several] for several in (sizes.zero, sizes.other, sizes.positive)]
    return [[vars(s) | {"places": [list(p) for p in s.places]} for s in sizes.sizes], *forms]


def _form(form: Form) -> Json:
    return [[[a if isinstance(a, int) else [_form(a.of), a.by] for a in term], factor] for term, factor in form.terms]


# ---- reading


def _program(file: Container) -> ExportedProgram:
    header = file.header
    found = tensors.arrays(file.section("tensors"), file)

    def tensor(name: str) -> Tensor:
        return Tensor._wrap(np.array(found[name]))

    graph = _graph(header["nodes"])
    inputs = [InputSpec(InputKind[k], _read_argument(a), t, p) for k, a, t, p in header["inputs"]]
    outputs = [OutputSpec(OutputKind[k], _read_argument(a), t) for k, a, t in header["outputs"]]
    state = {n: Parameter(tensor(at), grad) if kept else tensor(at) for n, at, kept, grad in header["state"]}
    constants = {n: tensor(at) for n, at in header["constants"]}
    spec, leaves = header["examples"]
    examples = [tensor(x["tensor"]) if isinstance(x, dict) and "tensor" in x else _value(x, {}) for x in leaves]
    shapes = [None if s is None else tuple(None if n is None else int(n) for n in s) for s in header["shapes"]]
    interface = Interface(
        treespec_loads(header["in_spec"]), [*map(str, header["names"])], [*map(str, header["where"])], shapes,
        [_value(c, {}) for c in header["plain"]], _read_sizes(header["sizes"], shapes),
    )  # fmt: skip
    if not len(interface.names) == len(interface.where) == len(shapes) == interface.in_spec.num_leaves:
        raise ValueError("the numbers of arguments in the file are inconsistent")
    program = ExportedProgram(
        graph, ExportGraphSignature(inputs, outputs), state, constants, interface, treespec_loads(header["out_spec"]),
        tree_unflatten(examples, treespec_loads(spec)), [*map(str, header["modules"])], str(header["dialect"]),
    )  # fmt: skip
    program.validate()
    return program


def _read_argument(told: Json) -> Any:
    kind, name, value = told
    _identifier(name, empty=True)
    return ConstantArgument(name, _value(value, {})) if kind == "ConstantArgument" else _ARGUMENTS[kind](name)


def _identifier(name: object, empty: bool = False) -> str:
    """Names of nodes become names of Python's in the code of the graph."""
    if not isinstance(name, str) or not (name.isidentifier() or (empty and not name)):
        raise ValueError(f"{name!r} is not a valid name")
    return name


def _graph(nodes: Json) -> Graph:
    graph = Graph()
    known: dict[str, Node] = {}
    for name, op, target, args, kwargs, shown, trace in nodes:
        if op not in ("placeholder", "call_function", "output"):
            raise ValueError(f"unknown node kind {op!r}")
        found = _target(target) if op == "call_function" else _identifier(target)
        node = graph.create_node(op, found, _value(args, known), _value(kwargs, known), name=_identifier(name))
        if node.name != name or name in known:
            raise ValueError(f"the name {name!r} is used for two nodes")
        known[name] = node
        if shown is not None:
            node.meta["shape"] = tuple(n if type(n) is int else str(n) for n in shown[1])
        if trace is not None:
            node.meta["stack_trace"] = str(trace)
    return graph


@cache
def _target(name: str) -> Any:
    """The function that a file names: an operator that works on tensors and nothing else, or one on numbers."""
    space, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if space == "operator" and rest in _SIZES:
        return _SIZES[rest]
    if not overload.isidentifier() or not (
        (space == "prims" and packet in OPS and not _talks(packet)) or (space == "aten" and _harmless(packet))
    ):
        raise ValueError(f"a graph cannot call {name!r}")
    return getattr(getattr(getattr(ops, space), packet), overload)


def _talks(name: str) -> bool:
    """Whether a primitive sends something to other processes."""
    return OPS[name].communicates


def _harmless(name: str) -> bool:
    """Whether a function of tracecomp is one that scripts may call, too."""
    spaces = guard.namespaces()
    known = {fn.__name__ for fn in kernels.KERNELS} | {"_conj", "lift_fresh_copy"}
    return name in known or (
        not name.startswith("_")
        and (
            name in spaces["torch"].members or name in spaces["torch.nn.functional"].members
            or callable(getattr(Tensor, name, None))
        )
    )  # fmt: skip


def _value(told: Json, known: Mapping[str, Node]) -> Any:
    if told is None or isinstance(told, bool | int | float | str):
        return told
    # A value without a JSON type is an object of one item: the kind and its contents. The file is not trusted: its
    # names are only looked up among known values.
    ((kind, x),) = told.items()
    if kind == "node":
        return known[x]
    if kind in ("list", "tuple"):
        parts = [_value(v, known) for v in x]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict":
        return {str(k): _value(v, known) for k, v in x}
    if kind == "dtype":
        return _named(x, DType)
    if kind in ("memory_format", "layout"):
        return _named(x, memory_format if kind == "memory_format" else layout)
    if kind == "device":
        return device(x)
    if kind == "complex":
        return complex(*x)
    if kind == "slice":
        return slice(*(_value(v, known) for v in x))
    if kind == "graph":
        return parse_graph(x)
    raise ValueError(f"unknown value kind {kind!r}")


def _named(text: str, kind: type[Any]) -> Any:
    """``torch.float32`` and its like."""
    spaces = (vars(types), guard.namespaces()["torch"].members)
    for value in (v for space in spaces for v in space.values()):
        if isinstance(value, kind) and str(value) == text:
            return value
    raise ValueError(f"{text!r} is no {kind.__name__}")


def _read_sizes(told: Json, shapes: list[Any]) -> OpenSizes:
    sizes, *forms = told
    found = []
    for one in sizes:
        places = [Place(*map(int, p)) for p in one.pop("places")]
        if not places or any(p.factor < 1 or shapes[p.leaf][p.axis] is not None for p in places):
            raise ValueError("a dynamic size names an unknown axis")
        found.append(Size(**one, places=places))
    zero, other, positive = [[_read_form(f, len(found)) for f in several] for several in forms]
    return OpenSizes(found, zero, other, positive)


def _read_form(told: Json, count: int) -> Form:
    terms = []
    for atoms, factor in told:
        term = tuple(a if type(a) is int else Quotient(_read_form(a[0], count), int(a[1])) for a in atoms)
        if any(not 0 <= a < count for a in term if isinstance(a, int)):
            raise ValueError("a size expression uses an unknown size")
        terms.append((term, int(factor)))
    return Form(tuple(terms))
