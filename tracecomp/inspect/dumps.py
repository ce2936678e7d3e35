"""Dumps that run: graphs, plans of lowering steps and loop programs, read from their text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.compiled.backends import BACKENDS
from tracecomp.inspect.tensor_files import read_arrays
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.program import Program, Slot, call_steps
from tracecomp.ir.program_parser import parse_program
from tracecomp.ir.types import DType, uint8
from tracecomp.ir.verify import verify
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]

CONSTANTS = "constants.npz"
"""File next to a dumped program: its inputs that callers do not pass, by position."""


def read_dump(path: Path) -> Graph | Program:
    """Parse and verify a dump; of a lowering step its graph. ValueError if it cannot be read."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("program "):
        program = parse_program(text)
        verify_program(program)
        return program
    graph = parse_graph(re.split(r"^plan ", text, maxsplit=1, flags=re.MULTILINE)[0])
    verify(graph)
    return graph


def run_graph(graph: Graph, arrays: Sequence[Array], way: str = "native") -> list[Array]:
    """Return the outputs for ``arrays``, one for each non-constant input, by one of ``compiled.backends.BACKENDS``."""
    given = [i for i in graph.inputs if i.role != "constant"]
    if len(arrays) != len(given):
        raise ValueError(f"the graph takes {len(given)} arrays, got {len(arrays)}")
    for array, i in zip(arrays, given, strict=True):
        if array.shape != i.value.shape or array.dtype != i.value.dtype.numpy:
            raise ValueError(f"{i.name} is {i.value.type}, not {array.dtype.name}{list(array.shape)}")
    outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
    # Verified, and so compiled again: a dump is run to see what the current passes do.
    with config.override(verify=True):
        BACKENDS[way](graph, {}, None, frozenset()).run([np.array(a, order="C") for a in arrays], outputs)
    return outputs


def run_program(program: Program, arrays: Sequence[Array], way: str = "native") -> list[Array]:
    """The outputs for ``arrays``, one for each input, as flat arrays; an updated input is copied first."""
    sizes = [s.nbytes for s in program.inputs]
    if [a.nbytes for a in arrays] != sizes:
        raise ValueError(f"the program takes arrays of {sizes} bytes, not of {[a.nbytes for a in arrays]}")
    inputs = [np.array(a, order="C") for a in arrays]
    outputs = [
        inputs[s.position] if s.space == "input" else np.zeros(s.nbytes // dtype.itemsize, dtype.numpy)
        for s, dtype in ((s, _type_of(program, s)) for s in program.outputs)
    ]
    if way == "interpret":
        interpret_program(program, inputs, outputs)
    else:
        Executable(program).run(inputs, outputs)
    return outputs


def _type_of(program: Program, slot: Slot) -> DType:
    """The type that kernels have for the slot."""
    for step in call_steps(program.steps):
        for param, ref in zip(step.kernel.params, step.args, strict=True):
            if ref.slot == slot:
                return param.dtype
    return uint8


def sample_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    """Random arrays for the non-constant inputs; integers are 0 or 1, which are mostly valid as indices."""
    rng = np.random.default_rng(seed)
    found = []
    for i in graph.inputs:
        if i.role != "constant":
            whole = i.value.dtype.kind in ("int", "bool")
            numbers = rng.integers(0, 2, i.value.shape) if whole else rng.standard_normal(i.value.shape)
            found.append(np.asarray(numbers).astype(i.value.dtype.numpy))
    return found


def arrays_for(names: Sequence[str], paths: Sequence[Path]) -> list[Array]:
    """The arrays of files for inputs of these names: by name, ``arr_0``, ``arr_1``, ... for the others in order."""
    found: dict[str, Array] = {}
    for path in paths:
        found.update(read_arrays(path))
    numbered = iter([found[f"arr_{n}"] for n in range(len(found)) if f"arr_{n}" in found])
    arrays = [found[name] if name in found else next(numbered, None) for name in names]
    missing = [name for name, array in zip(names, arrays, strict=True) if array is None]
    if missing:
        raise ValueError(f"no array for {', '.join(missing)}; there are {', '.join(found) or 'none'}")
    if next(numbered, None) is not None:
        raise ValueError(f"too many arrays: {', '.join(found)}; the inputs are {', '.join(names)}")
    return [a for a in arrays if a is not None]


def with_constants(program: Program, folder: Path, paths: Sequence[Path]) -> list[Array]:
    """All inputs of a program: the constants of its dump, and the arrays of files for the others."""
    file = folder / CONSTANTS
    constants = read_arrays(file) if file.exists() else {}
    given = iter(arrays_for([s.name for s in program.inputs if str(s.position) not in constants], paths))
    return [constants[str(s.position)] if str(s.position) in constants else next(given) for s in program.inputs]


__all__ = ["arrays_for", "read_dump", "run_graph", "run_program", "sample_inputs", "with_constants"]
