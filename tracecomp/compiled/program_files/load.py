"""Loading program files. Graphs are compiled on the spot; nothing in a file with graphs is believed without a look."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.errors import FAILURES
from tracecomp.compiled.program_files.code import cached_code_of
from tracecomp.compiled.program_files.levels import Level
from tracecomp.compiled.program_files.open_sizes import checked_sizes
from tracecomp.compiled.program_files.save import error_name
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.verify import verify
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import compiler
from tracecomp_runtime import container, program, tensors
from tracecomp_runtime.container import Container, ProgramError

Array = np.ndarray[Any, Any]


class LoadedProgram:
    """A program from a file, called with tensors (or arrays, numbers, nested as they were when it was saved).

    ``state``, ``numbers`` and ``gradients`` are those of ``tracecomp_runtime.Program``, as tensors over its memory.
    """

    def __init__(self, loaded: program.Program) -> None:
        self.program = loaded
        self.name = loaded.name

    def __call__(self, *args: Any) -> Any:
        """The results for ``args``. TypeError where a dtype or shape is not one that was saved."""
        return _tensors(self.program(*[_arrays(a) for a in args]))

    def __repr__(self) -> str:
        return repr(self.program)

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The program's state by name, in addition to its arguments."""
        return {name: Tensor._wrap(array) for name, array in self.program.state.items()}

    @property
    def numbers(self) -> Mapping[str, Array]:
        """Settings that are read at every call, as arrays without dimensions."""
        return self.program.numbers

    @property
    def gradients(self) -> Mapping[str, Tensor]:
        """The gradients that the last call left, by the name of the state they belong to."""
        return {name: Tensor._wrap(array) for name, array in self.program.gradients.items()}


def load_program(
    path: str | os.PathLike[str], *, digest: str | None = None, threads: int | None = None
) -> LoadedProgram:
    """Load the program that ``compiled.save`` wrote to ``path``.

    A file with machine code is loaded only with the correct ``digest``, which saving it returned: such code can do
    anything that this process can. A file with graphs is checked and compiled, and may be untrusted; a given ``digest``
    must still be correct. ProgramError describes an invalid file.
    """
    if Container(path).header.get("kind") == "code":
        return LoadedProgram(program.load_program(path, digest=digest, threads=threads))
    file = _GraphFile(path)
    if digest not in (None, file.digest):
        raise file.error(f"has the digest {file.digest}, expected {digest}")
    return LoadedProgram(program.from_container(file.compiled(), threads))


class _GraphFile(Container):
    """A file with graphs."""

    def compiled(self) -> Container:
        """The file, checked, with graphs for the code that this machine makes of them when it is needed first."""
        if self.header.get("kind") != "graph":
            raise self.error(f"is of an unknown kind, {self.header.get('kind')!r}")
        with self._believing_nothing():
            self.arrays = dict(tensors.arrays(self.section("tensors"), self))
            codes = []
            for one, path in zip(self.header["graphs"], self.header["paths"], strict=True):
                sizes = path.get("sizes")
                codes.append([self._graph(g, path) for g in one] if sizes else self._graph(one, path))
                if sizes:
                    checked_sizes(path, one)
                path["failures"] = [(error_name(kind), text) for kind, text in FAILURES.values()]
            self.header["levels"] = {container.HERE: codes}
        return self

    def code(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """The code of a graph, with its description."""
        level, found = Level("", host(), compiler.host_target()), dict(told)
        graph, inputs = found.pop("graph"), found["inputs"]
        with self._believing_nothing():
            # The loops are verified, too: no access is outside its array.
            with config.override(verify=True, fast_math=self.header.get("fast_math") is True):
                code = cached_code_of(graph, found.pop("aliases"), frozenset(map(int, told["frozen"])), level)
            found |= {"section": f"code/{told['section']}", "inputs": code.inputs(inputs, self._constant)}
        self.held[found["section"]] = code.linked.contents
        return {**found, **code.described()}

    @contextmanager
    def _believing_nothing(self) -> Iterator[None]:
        try:
            yield
        except ProgramError:
            raise
        except FAULTS as e:
            raise self.error(f"is damaged: {type(e).__name__}: {e}") from e

    def _constant(self, array: Array) -> str:
        self.arrays[f"constant:{len(self.arrays)}"] = array
        return str(len(self.arrays) - 1)

    def _graph(self, one: Mapping[str, Any], path: Mapping[str, Any]) -> Mapping[str, Any]:
        """The description of a graph, with the graph and its outputs that are inputs; only known fields are kept."""
        graph = parse_graph(bytes(self.section(one["section"])).decode())
        verify(graph)
        given = [(kind, what) for kind, what in one["inputs"]]
        found: dict[str, Any] = {"section": one["section"], "inputs": given, "frozen": one["frozen"], "graph": graph}
        if not path.get("sizes"):
            return {**found, "aliases": self._aliases(graph, path, given)}
        # A graph for several sizes has separate memory, so sizes in a call or file cannot make it overflow.
        opened = [i.value.shape for i in graph.inputs if i.role != "constant"]
        room = {str(slot): shape for slot, ((kind, _), shape) in enumerate(zip(given, opened, strict=True))
                if kind == "argument"}  # fmt: skip
        outputs = [[*o.value.shape] for o in graph.outputs]
        aliases = self._aliases(graph, path, given, len(one["box"]))
        return {**found, "box": one["box"], "blocks": one["blocks"], "room": room, "outputs": outputs,
                "aliases": aliases}  # fmt: skip

    def _aliases(
        self, graph: Graph, path: Mapping[str, Any], given: Sequence[tuple[str, Any]], before: int = 0
    ) -> dict[int, int]:
        """Outputs over inputs, as the header says; ProgramError unless all it says goes with the graph.

        ``before`` is the number of sizes that are inputs before those of the path. Numbers that follow from dynamic
        sizes are not compared.
        """
        inputs = [i.value.type for i in graph.inputs if i.role != "constant"]
        kinds = [(o.value.dtype.numpy, o.value.shape) for o in graph.outputs]
        told = [(tensors.dtype_of(dtype), _shape(shape)) for dtype, shape, *_ in path["outputs"]]
        wanted = [self._kind(kind, what, path) for kind, what in given]
        # Each of these would let a damaged or hostile file write to arbitrary memory, so all are checked before a
        # program is linked.
        if not _same_kinds(told, kinds) or not _same_kinds(wanted, [(t.dtype.numpy, t.shape) for t in inputs]):
            raise self.error("is damaged: its header and its graphs name different arrays")
        found = {k: int(what) + before for k, (*_, how, what) in enumerate(path["outputs"]) if how == "in_place"}
        written = [given[i] for i in found.values()]
        if any(kinds[k] != wanted[i] for k, i in found.items()) or len({*map(repr, written)}) < len(written):
            raise self.error("is damaged: a result and the array it overwrites differ in type")
        kept = [(k, n) for k, n in written if k == "constant" or (k == "state" and n not in self.header["written"])]
        if kept:
            raise self.error("is damaged: it writes an array that it declares read-only")
        return found

    def _kind(self, kind: str, what: Any, path: Mapping[str, Any]) -> Any:
        if kind == "argument":
            dtype, shape = path["arguments"][what]
            return tensors.dtype_of(dtype), _shape(shape)
        if kind == "number":
            return np.dtype(np.float64), ()
        if kind in ("size", "block") and path.get("sizes"):
            return np.dtype(np.int64), ()
        array = self.arrays[f"{kind}:{what}"]
        return array.dtype, array.shape


FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, RuntimeError,
    StopIteration, TypeError, ValueError,
)  # fmt: skip
"""Exceptions of reading damaged data."""


def _shape(told: Sequence[Any]) -> tuple[int, ...] | None:
    """A shape; None of one with numbers that follow from dynamic sizes."""
    return tuple(told) if all(type(n) is int for n in told) else None


def _same_kinds(told: Sequence[Any], there: Sequence[Any]) -> bool:
    return len(told) == len(there) and all(
        dtype == other and shape in (None, own) for (dtype, shape), (other, own) in zip(told, there, strict=True)
    )


def _arrays(value: object) -> Any:
    """``value`` with arrays for tensors."""
    if isinstance(value, Tensor):
        return value._data
    if isinstance(value, tuple | list):
        return type(value)(map(_arrays, value))
    return {k: _arrays(v) for k, v in value.items()} if isinstance(value, dict) else value


def _tensors(value: object) -> Any:
    """``value`` with tensors for arrays."""
    if isinstance(value, np.ndarray):
        return Tensor._wrap(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_tensors, value))
    return {k: _tensors(v) for k, v in value.items()} if isinstance(value, dict) else value
