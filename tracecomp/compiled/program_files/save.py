"""Saving recordings: as machine code, which needs numpy and ``tracecomp_runtime`` to run, or as graphs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.errors import FAILURES, CaptureError
from tracecomp.compiled.dynamic_shapes import grown_outputs
from tracecomp.compiled.inputs import aliases_of, frozen_inputs
from tracecomp.compiled.program_files.code import code_of
from tracecomp.compiled.program_files.container import write
from tracecomp.compiled.program_files.levels import Level
from tracecomp.compiled.program_files.open_sizes import LeftOpen, covering, terms, told_number
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import View
from tracecomp.ir.graph import Graph, Input, Value
from tracecomp.ir.printer import print_graph
from tracecomp.passes.graph.host_segments import has_external
from tracecomp.record.binding import Binding
from tracecomp.record.dynamic_shapes.generalize import size_inputs
from tracecomp.record.dynamic_shapes.instantiate import Instantiated
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.pytree import LEAF, Leaves
from tracecomp.record.recording import Recording
from tracecomp.record.results import (
    Common,
    Followed,
    Found,
    Given,
    Held,
    Made,
    Passed,
    Plain,
    Result,
    Seen,
    SizeResult,
    bottoms,
)
from tracecomp.record.size_forms import Form
from tracecomp.record.symbolic.sym_int import without
from tracecomp_runtime import tensors
from tracecomp_runtime.path import VIEWS

Array = np.ndarray[Any, Any]
Json = Any


@dataclass(frozen=True)
class Case:
    """A recording to save, and the arguments (leaves and how they are nested) that it was made for.

    With ``left_open`` it serves other sizes, too.
    """

    recording: Recording
    structure: Any
    leaves: Leaves
    left_open: LeftOpen | None = None


def save_code(
    path: str | os.PathLike[str], name: str, cases: Sequence[Case], names: Sequence[str], levels: Mapping[str, Level]
) -> str:  # fmt: skip
    """Write the recordings of one function as machine code for ``levels``; returns the file's digest.

    ``names`` are those of its arguments.

    CaptureError for what only a Python process can do: tensors in other places, effects, routines of the host.
    """
    file = _File(name, names)
    found = [_Path(file, case) for case in cases]
    header, sections = file.header("code", found, cases), {}
    for level, how in levels.items():
        header["levels"][level] = []
        for k, p in enumerate(found):
            pieces = []
            for j, piece in enumerate(p.pieces):
                code, section = code_of(piece.graph, piece.aliases, piece.frozen, how), f"code/{level}/{k}/{j}"
                sections[section] = code.linked.contents
                inputs = code.inputs(piece.inputs, file.constant)
                pieces.append({"section": section, "inputs": inputs, **piece.described(), **code.described()})
            header["levels"][level].append(pieces if p.left_open else pieces[0])
    return write(path, header, {**sections, "tensors": tensors.to_bytes(file.arrays)})


def save_graph(path: str | os.PathLike[str], name: str, cases: Sequence[Case], names: Sequence[str]) -> str:
    """Write the recordings of one function as text, which is compiled where it is loaded; returns the file's digest."""
    file = _File(name, names)
    found = [_Path(file, case) for case in cases]
    header, sections = file.header("graph", found, cases), {}
    header["fast_math"] = config.current().fast_math
    for k, p in enumerate(found):
        pieces = []
        for j, piece in enumerate(p.pieces):
            section = f"graph/{k}/{j}"
            sections[section] = print_graph(piece.graph).encode()
            told = {"section": section, "inputs": piece.inputs, "frozen": sorted(piece.frozen)}
            pieces.append({**told, **piece.described()})
        header["graphs"].append(pieces if p.left_open else pieces[0])
    return write(path, header, {**sections, "tensors": tensors.to_bytes(file.arrays)})


@dataclass(frozen=True)
class _Piece:
    """A graph to save: that of a path, or of a path and a box of its sizes."""

    graph: Graph
    aliases: Mapping[int, int]
    frozen: Set[int]
    inputs: Sequence[tuple[str, Any]]
    made: Instantiated | None = None

    def described(self) -> dict[str, Json]:
        """Which sizes it serves, and what its outputs have room for."""
        if self.made is None:
            return {}
        return {
            "box": self.made.box, "blocks": [(terms(form), target) for form, target in self.made.blocks],
            "outputs": [[*o.value.shape] for o in self.graph.outputs],
        }  # fmt: skip


class _File:
    """Common parts of a function's paths: names of state, arrays, the structure of arguments."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        self.name = name
        self.argument_names = names
        self.arrays: dict[str, Array] = {}
        self.state: list[str] = []
        self.written: set[str] = set()
        self.numbers: list[tuple[str, float]] = []
        self._names: dict[object, str] = {}
        self._held: list[Any] = []  # keeps objects alive whose ids are in _names

    def header(self, kind: str, paths: Sequence[_Path], cases: Sequence[Case]) -> dict[str, Json]:
        """The file's description of the function."""
        structures = {repr(s): s for s in (_structure(paths[0], case.structure) for case in cases)}
        if len(structures) > 1:
            raise CaptureError(f"{self.name} cannot be saved: its examples have different structures")
        return {
            "kind": kind, "name": self.name, "argument_names": self.argument_names,
            "arguments": next(iter(structures.values())), "state": self.state,
            "written": sorted(self.written), "numbers": self.numbers, "paths": [p.described() for p in paths],
            "levels": {}, "graphs": [],
        }  # fmt: skip

    def tensor(self, t: Tensor, wanted: str) -> str:
        """The name of a tensor of state, one for each."""
        if id(t) not in self._names:
            self._held.append(t)
            name = self._names[id(t)] = self._unused(wanted)
            self.state.append(name)
            self.arrays[f"state:{name}"] = t._data
        return self._names[id(t)]

    def number(self, binding: Binding, wanted: str) -> str:
        """The name of a number that is read at every call."""
        owner, key = binding.ref
        mark = id(owner), key
        if mark not in self._names:
            self._held.append(owner)
            name = self._names[mark] = self._unused(wanted)
            self.numbers.append((name, float(owner[key] if isinstance(owner, Mapping) else getattr(owner, key))))
        return self._names[mark]

    def constant(self, array: Array) -> str:
        """The name of a constant, one for equal ones."""
        name = hashlib.sha256(repr((array.dtype, array.shape)).encode() + array.tobytes()).hexdigest()[:16]
        self.arrays[f"constant:{name}"] = array
        return name

    def _unused(self, wanted: str) -> str:
        taken = {*self._names.values()}
        return next(name for name in chain([wanted], (f"{wanted}.{k}" for k in count(2))) if name not in taken)


def _without_saved(recording: Recording) -> Recording:
    """``recording`` without values for a later backward pass: that is impossible through a file."""
    if recording.split is None:
        return recording
    asked = [r.number for r in bottoms(recording.results)] + [p.number for p in recording.predicates]
    asked += [r.number for r in recording.results if isinstance(r, Followed)] + [n for _, n in recording.updates]
    asked += [new.number for _, new in recording.grads if isinstance(new, Made)]
    graph = copy(recording.graph)
    graph.outputs = graph.outputs[: max(asked, default=-1) + 1]
    graph.drop_dead()
    return replace(recording, graph=graph, split=None)


class _Path:
    """One recording, described for the loader."""

    def __init__(self, file: _File, case: Case) -> None:
        self.file = file
        self.recording = recording = _without_saved(case.recording)
        self.left_open = case.left_open
        self.leaves: Sequence[object] = case.leaves
        self.places = [k for k, x in enumerate(case.leaves) if isinstance(x, Tensor | np.ndarray)]
        self._argument = {leaf: k for k, leaf in enumerate(self.places)}
        self._sizes = recording.sizes if case.left_open else None
        self._size_of = size_inputs(recording, recording.graph, self._sizes) if self._sizes else {}
        self.copies: list[tuple[int, str]] = []
        self.overwrites: list[int] = []
        self.new_gradients: list[tuple[str, int]] = []
        given = [i for i in recording.graph.inputs if i.role != "constant"]
        self.inputs = [self._input(i, b) for i, b in zip(given, recording.inputs, strict=True)]
        self.outputs: list[list[Json]] = [
            [_dtype(o.value.dtype.numpy), self._shape(o.value), "new", None] for o in recording.graph.outputs
        ]
        self._updates()
        self._gradients()
        self.pieces = [*self._pieces()]

    def _shape(self, value: Value) -> Json:
        shape = self._sizes.shapes.get(value, value.shape) if self._sizes else value.shape
        return told_number(tuple(shape))

    def _pieces(self) -> Iterator[_Piece]:
        frozen, recording = frozen_inputs(self.recording), self.recording
        if self.left_open is None or self._sizes is None:
            yield _Piece(recording.graph, self.aliases, frozen, self.inputs)
            return
        try:
            found = covering(recording.graph, self._sizes, self.left_open.box(self._sizes))
        except NotSized as reason:
            raise self.refusal(f"cannot be compiled for every size: {reason}") from None
        for made in found:
            before = len(made.box)
            inputs = [("size", k) for k in range(before)] + self.inputs
            inputs += [("block", k) for k in range(len(made.blocks))]
            aliases = {out: i + before for out, i in self.aliases.items()}
            yield _Piece(made.graph, aliases, frozenset(i + before for i in frozen), inputs, made)

    def described(self) -> Json:
        """Everything but the code."""
        recording = self.recording
        if recording.rebound or recording.effects:
            raise self.refusal("changes Python objects or has other Python effects")
        if has_external(recording.graph):
            raise self.refusal("calls host routines (LAPACK)")
        return {
            "arguments": [self._kind(k) for k in self.places], "places": self.places,
            "sizes": self.left_open.described(self._sizes, self._argument) if self.left_open and self._sizes else None,
            "plain": [(k, _plain(self, x)) for k, x in enumerate(self.leaves) if k not in self._argument],
            "flat": self.places == [*range(len(self.leaves))], "outputs": self.outputs, "copies": self.copies,
            "overwrites": self.overwrites, "new_gradients": self.new_gradients,
            "predicates": [(p.number, p.seen) for p in recording.predicates],
            "results": [self._result(r) for r in recording.results], "structure": _structure(self, recording.structure),
            "failures": [(error_name(kind), text) for kind, text in FAILURES.values()],
        }  # fmt: skip

    def refusal(self, text: str) -> CaptureError:
        """Why the program cannot be saved."""
        return CaptureError(f"{self.file.name} cannot be saved as machine code: it {text}")

    def _kind(self, leaf: int) -> Json:
        """The dtype and shape of an argument."""
        dtype, shape = _kind(self.leaves[leaf])
        for number, same in enumerate(self._sizes.sources if self._sizes else ()):
            for holder, axis in same:
                if holder == ("argument", leaf):
                    shape[axis] = terms(Form.of_size(number))
        return [dtype, shape]

    def _input(self, given: Input, binding: Binding) -> tuple[str, Any]:
        name = given.name
        if binding.kind == "size" and given.value in self._size_of:
            return "size", self._size_of[given.value]
        if binding.kind == "argument":
            return "argument", self._argument[binding.ref]
        if binding.kind == "state":
            return "state", self.file.tensor(binding.ref, name)
        if binding.kind == "host":
            return "number", self.file.number(binding, name)
        if binding.kind == "grad" and binding.ref.kind == "state":
            return "state", self._gradient_state(binding.ref.ref)
        raise self.refusal(f"reads {name!r} from a Python object")

    def _gradient_state(self, holder: Tensor) -> str:
        assert holder._grad is not None
        name = self.file.tensor(holder._grad, f"{self.file.tensor(holder, 'state')}.grad")
        self.file.written.add(name)
        return name

    def _updates(self) -> None:
        grown = grown_outputs(self.recording.graph, self._sizes) if self._sizes else ()
        in_place = self.aliases = {k: i for k, i in aliases_of(self.recording).items() if k not in grown}
        for target, number in self.recording.updates:
            if number in in_place:
                self.outputs[number][2:] = ["in_place", in_place[number]]
            if target.kind == "argument":
                self.overwrites.append(self._argument[target.ref])
                if number not in in_place:
                    raise self.refusal("overwrites an argument and has several paths or dynamic sizes")
            elif target.kind == "state":
                name = self.file.tensor(target.ref, self.recording.graph.outputs[number].name)
                self.file.written.add(name)
                if number not in in_place:
                    self.copies.append((number, name))
            else:
                raise self.refusal("overwrites a tensor in a Python object")

    def _gradients(self) -> None:
        shown = {r.number for r in bottoms(self.recording.results)}
        read = {id(b.ref.ref) for b in self.recording.inputs if b.kind == "grad"}
        for holder, new in self.recording.grads:
            if new is None and id(holder.ref) not in read:
                continue
            if holder.kind != "state" or not isinstance(new, Made) or new.order is not None:
                raise self.refusal("sets a gradient that is not a new tensor, or not of a parameter")
            name = self.file.tensor(holder.ref, "state")
            if id(holder.ref) in read:
                self.copies.append((new.number, self._gradient_state(holder.ref)))
            elif new.number in shown:
                self.new_gradients.append((name, new.number))
            else:
                self.outputs[new.number][2:] = ["gradient", name]

    def _result(self, r: Result) -> Json:
        """The description of a result: a plain value or a size, a number, or an array and the views of it.

        Refused where only Python could build the result. With fixed sizes the views become one layout, so that the
        loader needs no view operators.
        """
        if isinstance(r, Plain):
            return ["plain", _plain(self, r.value), None, None]
        if isinstance(r, SizeResult):
            kind, what = ("plain", r.value) if self._sizes is None else ("size", terms(r.form))
            return [kind, what, None, None]
        if isinstance(r, Followed):
            return ["value", r.number, None, None]
        if isinstance(r, Found | Passed | Common):
            raise self.refusal("returns a Python object")
        base: Held = r
        steps: list[View] = []
        while isinstance(base, Seen):
            steps = [*base.steps, *steps]
            base = base.of
        if isinstance(base, Made):
            o = self.recording.graph.outputs[base.number]
            spec: list[Json] = ["output", base.number, base.order, None]
            probe = np.empty(o.value.shape, o.value.dtype.numpy)
            looked = probe if base.order is None else probe.transpose(np.argsort(base.order))
        else:
            kind, what = self._given(base)
            spec = [kind, what, None, None]
            t = self.leaves[self.places[what]] if kind == "argument" else base.source.ref
            looked = probe = np.empty(t.shape if isinstance(t, np.ndarray) else t._data.shape, _array(t).dtype)
        for op, attrs in steps:
            looked = op.impl(looked, **{k: without(v) for k, v in attrs.items()})
        if steps:
            if looked.dtype != probe.dtype or not np.may_share_memory(looked, probe):
                raise self.refusal("returns a view with a different dtype")
            if self._sizes is not None:
                return [*spec[:3], self._steps(steps)]
            start = (looked.ctypes.data - probe.ctypes.data) // probe.itemsize if looked.size else 0
            spec[2:] = [None, [looked.shape, looked.strides, start]]
        return spec

    def _steps(self, steps: Sequence[View]) -> Json:
        """Steps from the array of a result of dynamic sizes to the result."""
        unknown = [op.name for op, _ in steps if op.name not in VIEWS]
        if unknown:
            raise self.refusal(f"returns a view made by {unknown[0]}, which does not support dynamic sizes")
        return [(op.name, {key: told_number(value) for key, value in attrs.items()}) for op, attrs in steps]

    def _given(self, r: Given) -> tuple[str, Any]:
        if r.source.kind == "argument":
            return "argument", self._argument[r.source.ref]
        if r.source.kind == "state":
            return "state", self.file.tensor(r.source.ref, "state")
        raise self.refusal("returns a tensor from a Python object")


def _array(value: Any) -> Array:
    found: Array = value._data if isinstance(value, Tensor) else value
    return found


def _dtype(dtype: np.dtype[np.generic]) -> str:
    return "bfloat16" if dtype.kind == "V" else dtype.name


def _kind(value: object) -> Json:
    return [_dtype(_array(value).dtype), [*_array(value).shape]]


def error_name(kind: type[Exception]) -> str:
    """The loader's exception if native code reports ``kind``."""
    return "IndexError" if issubclass(kind, IndexError) else "RuntimeError"


def _plain(path: _Path, value: object) -> Json:
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise path.refusal(f"takes or returns {type(value).__name__} objects")


def _structure(path: _Path, structure: Any) -> Json:
    """How values are nested, as the loader reads it."""
    if structure is LEAF:
        return LEAF
    kind, *parts = structure
    if kind is dict:
        keys, *parts = parts
        if not all(isinstance(key, str) for key in keys):
            raise path.refusal("takes or returns a dict whose keys are not strings")
        return ["dict", [*keys], *[_structure(path, p) for p in parts]]
    if kind not in (tuple, list):
        raise path.refusal(f"takes or returns {getattr(kind, '__name__', kind)} objects")
    return [kind.__name__, *[_structure(path, p) for p in parts]]
