"""Model files as callables on arrays: program files, exported programs and ONNX models. Used by the worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tracecomp
from tracecomp.base.errors import TracecompError
from tracecomp.base.lazy_names import load_module
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.serve.settings import Settings
from tracecomp.serve.signature import OPEN, TensorSpec
from tracecomp.serve.tensors import DATATYPES, Array
from tracecomp.utils._pytree import tree_flatten, tree_unflatten
from tracecomp_runtime import Container
from tracecomp_runtime.nesting import unflatten
from tracecomp_runtime.open_sizes import numbers

Json: TypeAlias = Any
"""A value of a program file's header."""
Message: TypeAlias = Any
"""A message of package onnx, which has no types."""
_NO_SINGLE_ROW = "the open first size does not include 1"
MOST_SHAPES = 16  # that a model is compiled for; each program may have its own copy of packed weights
SIZE = 8  # the first guess of an open size
UNLIMITED = 1 << 30  # rows; the maximum of an open size without a limit


@dataclass
class Loaded:
    """A model that runs on arrays, in the order of ``inputs``; ``output_names`` may be unknown before the first run.

    ``example_shapes`` are shapes of the inputs in a possible call.
    ``max_rows`` is the largest open first size that all inputs share, and 0 with ``not_batched`` as the reason where
    there is none. ``exact`` models run at any number of rows; others are compiled for some numbers.
    """

    platform: str
    inputs: list[TensorSpec]
    example_shapes: Sequence[tuple[int, ...]]
    output_names: list[str] | None
    run: Callable[[Sequence[Array]], list[Array]]
    max_rows: int
    not_batched: str = ""
    exact: bool = False


def load(path: Path, settings: Settings) -> Loaded:
    """Load a model file. TracecompError, ValueError or OSError describes a file that cannot be served."""
    if path.suffix == ".onnx":
        return _onnx(path)
    kind = Container(path).header.get("kind")
    return _exported(path) if kind == "exported" else _program(path, settings)


# ---- program files


def _program(path: Path, settings: Settings) -> Loaded:
    file = Container(path)
    if file.header.get("kind") == "code" and settings.digest is None:
        raise TracecompError(f"{path.name} holds machine code; its settings must have the digest that save() returned")
    program = tracecomp.load_program(path, digest=settings.digest, threads=settings.threads).program
    if file.header["written"]:
        changed = ", ".join(file.header["written"])
        raise TracecompError(f"{path.name} changes its state ({changed}) in every call; save a program that only reads")
    structure, paths = file.header["arguments"], file.header["paths"]
    places, plain = paths[0]["places"], dict(paths[0]["plain"])
    names = _leaf_names(structure, file.header.get("argument_names"))
    inputs = [
        TensorSpec(names[place], DATATYPES[dtype], _common_shape([p["arguments"][k][1] for p in paths]))
        for k, (place, (dtype, _)) in enumerate(zip(places, paths[0]["arguments"], strict=True))
    ]

    def run(arrays: Sequence[Array]) -> list[Array]:
        leaves = {**plain, **dict(zip(places, arrays, strict=True))}
        return _arrays(program(*unflatten(structure, iter([leaves[k] for k in range(len(leaves))]))))

    max_rows, reason = _program_rows(inputs, paths)
    shapes = _program_shapes(paths[0])
    return Loaded(f"tracecomp_{file.header['kind']}", inputs, shapes, None, run, max_rows, reason, exact=True)


def _common_shape(shapes: Sequence[Sequence[Json]]) -> tuple[int, ...]:
    """The shape of an argument in all paths: sizes that are open or that differ are open."""
    if len({len(shape) for shape in shapes}) > 1:
        raise TracecompError("the program was saved for several numbers of dimensions; save one program for each")
    return tuple(s[0] if type(s[0]) is int and len({*map(str, s)}) == 1 else OPEN for s in zip(*shapes, strict=True))


def _program_shapes(path: Mapping[str, Json]) -> list[tuple[int, ...]]:
    """Shapes of the arguments of a path, with sizes in its ranges."""
    ranges = path["sizes"]["ranges"] if path["sizes"] else ()
    sizes = [min(max(low, SIZE), high) for low, high, _ in ranges]
    return [numbers(shape, sizes) for _, shape in path["arguments"]]


def _program_rows(inputs: Sequence[TensorSpec], paths: Sequence[Mapping[str, Json]]) -> tuple[int, str]:
    if any(path["predicates"] for path in paths):
        return 0, "the program's path depends on values"
    for path in paths:
        firsts: list[Any] = [shape[0] if shape else None for _, shape in path["arguments"]]
        if path["sizes"] and firsts and all(type(f) is list and f == firsts[0] for f in firsts):
            (atoms, factor), *more = firsts[0]
            if not more and factor == 1 and len(atoms) == 1 and type(atoms[0]) is int:
                low, high, _ = path["sizes"]["ranges"][atoms[0]]
                has_one = low == 1 or any(all(shape[:1] == [1] for _, shape in p["arguments"]) for p in paths)
                return (int(high), "") if has_one else (0, _NO_SINGLE_ROW)
    return 0, _no_batch(inputs)


def _leaf_names(structure: Json, given: Json) -> list[str]:
    """A name for each leaf of the arguments: that of the argument, and ``x.key`` within a dict ``x``.

    Older files do not have the arguments' names.
    """
    names = given if isinstance(given, list) and len(given) == len(structure) - 1 else []
    names = [str(name) for name in names] or [f"input_{k}" for k in range(len(structure) - 1)]

    def walk(part: Json, name: str) -> list[str]:
        if part == "*":
            return [name]
        kind, *parts = part
        keys = parts.pop(0) if kind == "dict" else range(len(parts))
        return [leaf for key, inner in zip(keys, parts, strict=True) for leaf in walk(inner, f"{name}.{key}")]

    return [leaf for name, part in zip(names, structure[1:], strict=True) for leaf in walk(part, name)]


# ---- modules, which are compiled here


def _onnx(path: Path) -> Loaded:
    module = load_module("tracecomp.onnx.module").load(path)  # the package onnx is optional
    graph = module._model.graph
    inputs, symbols = [], []
    for name in module.input_names:
        kind = graph.types[name].tensor_type
        dtype = import_module("onnx").helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.name not in DATATYPES or not kind.HasField("shape"):
            raise TracecompError(f"{path.name}: input {name!r} is not a tensor of numbers with a known rank")
        dims = kind.shape.dim
        inputs.append(TensorSpec(name, DATATYPES[dtype.name], tuple(_onnx_size(d) for d in dims)))
        symbols.append(dims[0].dim_param if dims else "")
    control = {node.op for node in graph.walk()} & _VALUE_DEPENDENT
    max_rows, reason = UNLIMITED, ""
    if control:
        max_rows, reason = 0, f"{', '.join(sorted(control))} may depend on values of the whole batch"
    elif not _share_rows(inputs, symbols):
        max_rows, reason = 0, _no_batch(inputs)
    shapes = [tuple(SIZE if n == OPEN else n for n in spec.shape) for spec in inputs]
    return Loaded("onnx", inputs, shapes, module.output_names, _compiled(module), max_rows, reason)


_VALUE_DEPENDENT = frozenset(("If", "Loop", "Scan", "NonZero", "Unique", "NonMaxSuppression", "Compress"))


def _onnx_size(dim: Message) -> int:
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else OPEN


def _share_rows(inputs: Sequence[TensorSpec], symbols: Sequence[str]) -> bool:
    """Whether all first sizes are open and one: several need the same name."""
    is_open = all(spec.shape and spec.shape[0] == OPEN for spec in inputs)
    return bool(inputs) and is_open and (len(inputs) == 1 or (len({*symbols}) == 1 and "" not in symbols))


def _exported(path: Path) -> Loaded:
    program = load_module("tracecomp.export").load(str(path))
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise TracecompError(f"{path.name} changes its buffers or inputs; export a program that only reads")
    leaves, spec = tree_flatten(program.example_inputs)
    shapes = {node.name: node.meta["shape"] for node in program.graph.nodes if node.op == "placeholder"}
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    names = [signature.user_inputs[k] for k in places]
    inputs = [
        TensorSpec(name, DATATYPES[leaves[k]._data.dtype.name], _closed(shapes[name]))
        for name, k in zip(names, places, strict=True)
    ]
    module = program.module()

    def call(*tensors: Tensor) -> Any:
        filled = dict(zip(places, tensors, strict=True))
        args, kwargs = tree_unflatten([filled.get(k, leaf) for k, leaf in enumerate(leaves)], spec)
        return module(*args, **kwargs)

    firsts = {shapes[name][:1] for name in names}
    max_rows, reason = 0, _no_batch(inputs)
    if len(firsts) == 1 and (symbol := firsts.pop()) and symbol[0] in program.range_constraints:
        rows = program.range_constraints[symbol[0]]
        max_rows, reason = (0, _NO_SINGLE_ROW) if rows.lower > 1 else (int(min(rows.upper, UNLIMITED)), "")
    output_names = [name for name in signature.user_outputs if isinstance(name, str)]
    examples = [leaves[k]._data.shape for k in places]
    return Loaded("tracecomp_exported", inputs, examples, output_names, _compiled(call), max_rows, reason)


def _closed(shape: Sequence[object]) -> tuple[int, ...]:
    return tuple(size if type(size) is int else OPEN for size in shape)


def _compiled(call: Callable[..., object]) -> Callable[[Sequence[Array]], list[Array]]:
    """``call`` on arrays, compiled for the first tuples of shapes. Others run eagerly, with the same bits."""
    kept: dict[tuple[tuple[int, ...], ...], Callable[..., object]] = {}

    def run(arrays: Sequence[Array]) -> list[Array]:
        shapes = tuple(array.shape for array in arrays)
        if shapes not in kept and len(kept) < MOST_SHAPES:
            kept[shapes] = tracecomp.compile(lambda *tensors: call(*tensors), dynamic=False, wait=True)
        with no_grad():
            return _arrays(kept.get(shapes, call)(*[Tensor._wrap(array) for array in arrays]))

    return run


def _no_batch(inputs: Sequence[TensorSpec]) -> str:
    return "the inputs do not share an open first size" if inputs else "the model has no inputs"


def _arrays(result: object) -> list[Array]:
    """The arrays of nested results, in order."""
    leaves = [result] if isinstance(result, np.ndarray) else tree_flatten(result)[0]
    return [leaf._data if isinstance(leaf, Tensor) else np.asarray(leaf) for leaf in leaves]
