"""Loading program files. Graphs are compiled on the spot; nothing in a file with graphs is believed without a look."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.errors import FAILURES
from tracecomp.codegen.text import native
from tracecomp.compiled.program_files.levels import Level
from tracecomp.compiled.program_files.save import code_of, error_name
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.verify import verify
from tracecomp.passes.cost.machine import host
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
        """What the program reads and writes besides its arguments, by name."""
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
    """The program that ``compiled.save`` wrote to ``path``.

    A file with machine code is loaded only when its ``digest``, which saving it returned, is given and right: such code
    can do whatever this process can. A file with graphs is checked and compiled, and may come from strangers; where
    ``digest`` is given it has to be right all the same. ProgramError says what is wrong with a file.
    """
    if Container(path).header.get("kind") == "code":
        return LoadedProgram(program.load_program(path, digest=digest, threads=threads))
    file = _GraphFile(path)
    if digest not in (None, file.digest):
        raise file.error(f"has the digest {file.digest}, and {digest} was asked for")
    return LoadedProgram(program.from_container(file.compiled(), threads))


class _GraphFile(Container):
    """A file with graphs."""

    def compiled(self) -> Container:
        """The file with code for this machine beside its graphs."""
        if self.header.get("kind") != "graph":
            raise self.error(f"is of an unknown kind, {self.header.get('kind')!r}")
        try:
            return self._compiled()
        except ProgramError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as e:
            raise self.error(f"is damaged: {type(e).__name__}: {e}") from e

    def _compiled(self) -> Container:
        arrays = dict(tensors.arrays(self.section("tensors"), self))
        level = Level("", host(), native.host_target())
        described: list[dict[str, Any]] = []
        for one, path in zip(self.header["graphs"], self.header["paths"], strict=True):
            graph = parse_graph(bytes(self.section(one["section"])).decode())
            verify(graph)
            given = [(kind, what) for kind, what in one["inputs"]]
            aliases = self._aliases(graph, path, given, arrays)
            with config.override(verify=True):  # the loops, too: no access lies outside of its array
                code = code_of(graph, aliases, frozenset(map(int, one["frozen"])), level)

            def constant(array: Array) -> str:
                arrays[f"constant:{len(arrays)}"] = array
                return str(len(arrays) - 1)

            image = {"section": f"code/{len(described)}", "inputs": code.inputs(given, constant), **code.described()}
            self.held[image["section"]] = code.linked.contents
            described.append(image)
            path["failures"] = [(error_name(kind), text) for kind, text in FAILURES.values()]
        self.held["tensors"] = tensors.to_bytes(arrays)
        self.header["levels"] = {container.HERE: described}
        return self

    def _aliases(
        self, graph: Graph, path: Mapping[str, Any], given: Sequence[tuple[str, Any]], arrays: Mapping[str, Array]
    ) -> dict[int, int]:
        """Outputs over inputs, as the header says; ProgramError unless all it says goes with the graph."""
        inputs = [i.value.type for i in graph.inputs if i.role != "constant"]
        kinds = [(o.value.dtype.numpy, o.value.shape) for o in graph.outputs]
        told = [(tensors.dtype_of(dtype), tuple(shape)) for dtype, shape, *_ in path["outputs"]]
        wanted = [self._kind(kind, what, path, arrays) for kind, what in given]
        # Each is a way for a damaged or hostile file to write where nobody expects
        # it, so all of it is checked before a program is linked.
        if told != kinds or [(t.dtype.numpy, t.shape) for t in inputs] != wanted:
            raise self.error("is damaged: its header and its graphs are about other arrays")
        found = {k: int(what) for k, (*_, how, what) in enumerate(path["outputs"]) if how == "in_place"}
        written = [given[i] for i in found.values()]
        if any(kinds[k] != wanted[i] for k, i in found.items()) or len({*map(repr, written)}) < len(written):
            raise self.error("is damaged: it writes results over arrays of other kinds")
        kept = [(k, n) for k, n in written if k == "constant" or (k == "state" and n not in self.header["written"])]
        if kept:
            raise self.error("is damaged: it writes what it says it does not")
        return found

    def _kind(self, kind: str, what: Any, path: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
        if kind == "argument":
            dtype, shape = path["arguments"][what]
            return tensors.dtype_of(dtype), tuple(shape)
        if kind == "number":
            return np.dtype(np.float64), ()
        array = arrays[f"{kind}:{what}"]
        return array.dtype, array.shape


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
