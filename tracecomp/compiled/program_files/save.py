"""Saving recordings: as machine code, which needs numpy and ``tracecomp_runtime`` to run, or as graphs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from tracecomp.base.errors import FAILURES, CaptureError
from tracecomp.codegen.calls import array_call, program_call
from tracecomp.codegen.kernels.program import ENTRY
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.threads import sync
from tracecomp.compiled.inputs import aliases_of, frozen_inputs
from tracecomp.compiled.program_files.container import write
from tracecomp.compiled.program_files.levels import Level
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import View
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes import Built, build
from tracecomp.passes.cost.machine import on
from tracecomp.passes.graph.host_segments import has_external
from tracecomp.record.binding import Binding
from tracecomp.record.pytree import LEAF, Leaves
from tracecomp.record.recording import Recording
from tracecomp.record.results import Followed, Found, Given, Held, Made, Passed, Plain, Result, Seen, bottoms
from tracecomp.runtime import object_cache
from tracecomp.runtime.image import Image
from tracecomp.runtime.linker import Linked, link
from tracecomp_runtime import tensors

Array = np.ndarray[Any, Any]
Json = Any


@dataclass(frozen=True)
class Case:
    """A recording to save, and the arguments (leaves and how they are nested) that it was made for."""

    recording: Recording
    structure: Any
    leaves: Leaves


def save_code(path: str | os.PathLike[str], name: str, cases: Sequence[Case], levels: Mapping[str, Level]) -> str:
    """Write the recordings of one function as machine code for ``levels``; returns the file's digest.

    CaptureError for what only a Python process can do: tensors in other places, effects, routines of the host.
    """
    file = _File(name)
    found = [_Path(file, case.recording, case.leaves) for case in cases]
    header, sections = file.header("code", found, cases), {}
    for level, how in levels.items():
        header["levels"][level] = []
        for k, p in enumerate(found):
            code, section = code_of(p.recording.graph, p.aliases, frozen_inputs(p.recording), how), f"code/{level}/{k}"
            sections[section] = code.linked.contents
            inputs = code.inputs(p.inputs, file.constant)
            header["levels"][level].append({"section": section, "inputs": inputs, **code.described()})
    return write(path, header, {**sections, "tensors": tensors.to_bytes(file.arrays)})


def save_graph(path: str | os.PathLike[str], name: str, cases: Sequence[Case]) -> str:
    """Write the recordings of one function as text, which is compiled where it is loaded; returns the file's digest."""
    file = _File(name)
    found = [_Path(file, case.recording, case.leaves) for case in cases]
    header, sections = file.header("graph", found, cases), {}
    for k, p in enumerate(found):
        sections[f"graph/{k}"] = print_graph(p.recording.graph).encode()
        inputs, frozen = [*p.inputs], sorted(frozen_inputs(p.recording))
        header["graphs"].append({"section": f"graph/{k}", "inputs": inputs, "frozen": frozen})
    return write(path, header, {**sections, "tensors": tensors.to_bytes(file.arrays)})


@dataclass
class Code:
    """A graph's program for one level."""

    built: Built
    image: Image
    linked: Linked

    def inputs(self, given: Sequence[tuple[str, Any]], constant: Callable[[Array], str]) -> list[tuple[str, Any]]:
        """What the first places of the table hold: ``given``, with the constants among and behind them."""
        rest = iter(given)
        data = [i.data if i.role == "constant" else None for i in self.built.graph.inputs]
        places = [next(rest) if array is None else ("constant", constant(array)) for array in data]
        return [*places, *[("constant", constant(np.asarray(array))) for array in self.built.constants]]

    def described(self) -> dict[str, Json]:
        """What the loader needs to know besides."""
        image, symbols = self.image, self.linked.symbols
        return {
            **self.linked.description(), "entry": symbols[ENTRY], "call": symbols[program_call.CALL],
            "worker": symbols[sync.WORKER], "memory_bytes": image.memory_bytes, "thread_bytes": image.thread_bytes,
            "parallel": image.parallel, "prepared": image.prepared, "labels": image.labels,
            "record": program_call.RECORD, "argument_row": program_call.ARGUMENT, "output_row": program_call.OUTPUT,
        }  # fmt: skip


def code_of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int], level: Level) -> Code:
    """A graph as machine code; every level is scheduled for its own kind of machine."""
    target = level.target
    with on(level.machine):
        built = build(graph, aliases, frozen=frozen)
    image = Image.of(built.program, target=target)
    shared = module_text(sync.shared_text(target), array_call.call_text(), program_call.call_text())
    return Code(built, image, link([*image.objects, object_cache.object_code(shared, target)]))


class _File:
    """What the paths of one function have in common: names of state, arrays, the structure of arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrays: dict[str, Array] = {}
        self.state: list[str] = []
        self.written: set[str] = set()
        self.numbers: list[tuple[str, float]] = []
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # what ids in _names belong to

    def header(self, kind: str, paths: Sequence[_Path], cases: Sequence[Case]) -> dict[str, Json]:
        """What the file says of the function."""
        structures = {repr(s): s for s in (_structure(paths[0], case.structure) for case in cases)}
        if len(structures) > 1:
            raise CaptureError(f"{self.name} cannot be saved: its examples are nested in different ways")
        return {
            "kind": kind, "name": self.name, "arguments": next(iter(structures.values())), "state": self.state,
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
        mark = hash((id(owner), key))
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


class _Path:
    """One recording, described for the loader."""

    def __init__(self, file: _File, recording: Recording, leaves: Leaves) -> None:
        self.file = file
        self.recording = recording
        self.leaves = leaves
        self.places = [k for k, x in enumerate(leaves) if isinstance(x, Tensor | np.ndarray)]
        self._argument = {leaf: k for k, leaf in enumerate(self.places)}
        self.copies: list[tuple[int, str]] = []
        self.overwrites: list[int] = []
        self.new_gradients: list[tuple[str, int]] = []
        names = [i.name for i in recording.graph.inputs if i.role != "constant"]
        self.inputs = [self._input(name, b) for name, b in zip(names, recording.inputs, strict=True)]
        self.outputs: list[list[Json]] = [
            [_dtype(o.value.dtype.numpy), [*o.value.shape], "new", None] for o in recording.graph.outputs
        ]
        self._updates()
        self._gradients()

    def described(self) -> Json:
        """Everything but the code."""
        recording = self.recording
        if recording.rebound or recording.effects:
            raise self.refusal("changes objects of Python's, or has other effects there")
        if has_external(recording.graph):
            raise self.refusal("calls routines of the host (LAPACK)")
        return {
            "arguments": [_kind(self.leaves[k]) for k in self.places], "places": self.places,
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

    def _input(self, name: str, binding: Binding) -> tuple[str, Any]:
        if binding.kind == "argument":
            return "argument", self._argument[binding.ref]
        if binding.kind == "state":
            return "state", self.file.tensor(binding.ref, name)
        if binding.kind == "host":
            return "number", self.file.number(binding, name)
        if binding.kind == "grad" and binding.ref.kind == "state":
            return "state", self._gradient_state(binding.ref.ref)
        raise self.refusal(f"reads {name!r} from a place in Python")

    def _gradient_state(self, holder: Tensor) -> str:
        assert holder._grad is not None
        name = self.file.tensor(holder._grad, f"{self.file.tensor(holder, 'state')}.grad")
        self.file.written.add(name)
        return name

    def _updates(self) -> None:
        in_place = self.aliases = aliases_of(self.recording)
        for target, number in self.recording.updates:
            if number in in_place:
                self.outputs[number][2:] = ["in_place", in_place[number]]
            if target.kind == "argument":
                self.overwrites.append(self._argument[target.ref])
                if number not in in_place:
                    raise self.refusal("overwrites an argument and has several paths")
            elif target.kind == "state":
                name = self.file.tensor(target.ref, self.recording.graph.outputs[number].name)
                self.file.written.add(name)
                if number not in in_place:
                    self.copies.append((number, name))
            else:
                raise self.refusal("overwrites a tensor in a place of Python's")

    def _gradients(self) -> None:
        shown = {r.number for r in bottoms(self.recording.results)}
        read = {id(b.ref.ref) for b in self.recording.inputs if b.kind == "grad"}
        for holder, new in self.recording.grads:
            if new is None and id(holder.ref) not in read:
                continue
            if holder.kind != "state" or not isinstance(new, Made) or new.order is not None:
                raise self.refusal("sets a gradient that is no new tensor of a parameter's")
            name = self.file.tensor(holder.ref, "state")
            if id(holder.ref) in read:
                self.copies.append((new.number, self._gradient_state(holder.ref)))
            elif new.number in shown:
                self.new_gradients.append((name, new.number))
            else:
                self.outputs[new.number][2:] = ["gradient", name]

    def _result(self, r: Result) -> Json:
        if isinstance(r, Plain):
            return ["plain", _plain(self, r.value), None, None]
        if isinstance(r, Followed):
            return ["value", r.number, None, None]
        if isinstance(r, Found | Passed):
            raise self.refusal("returns an object of Python's")
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
            looked = op.impl(looked, **attrs)
        if steps:
            if looked.dtype != probe.dtype or not np.may_share_memory(looked, probe):
                raise self.refusal("returns a view of another dtype")
            start = (looked.ctypes.data - probe.ctypes.data) // probe.itemsize if looked.size else 0
            spec[2:] = [None, [looked.shape, looked.strides, start]]
        return spec

    def _given(self, r: Given) -> tuple[str, Any]:
        if r.source.kind == "argument":
            return "argument", self._argument[r.source.ref]
        if r.source.kind == "state":
            return "state", self.file.tensor(r.source.ref, "state")
        raise self.refusal("returns a tensor from a place of Python's")


def _array(value: Any) -> Array:
    found: Array = value._data if isinstance(value, Tensor) else value
    return found


def _dtype(dtype: np.dtype[np.generic]) -> str:
    return "bfloat16" if dtype.kind == "V" else dtype.name


def _kind(value: object) -> Json:
    return [_dtype(_array(value).dtype), [*_array(value).shape]]


def error_name(kind: type[Exception]) -> str:
    """What the loader raises where native code reports ``kind``."""
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
            raise path.refusal("takes or returns a dict whose keys are no strings")
        return ["dict", [*keys], *[_structure(path, p) for p in parts]]
    if kind not in (tuple, list):
        raise path.refusal(f"takes or returns {getattr(kind, '__name__', kind)} objects")
    return [kind.__name__, *[_structure(path, p) for p in parts]]
