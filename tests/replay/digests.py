"""Digests of a recorded graph's compilation: the loop program for two machines, and the bits of its outputs.

On the way, every graph and program is printed, read back and printed again: not a line may differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.replay.corpus import Recorded
from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import kernel_key, print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.program import Program, call_steps
from tracecomp.ir.program_parser import parse_program
from tracecomp.ir.types import DType
from tracecomp.passes.building import Built, build
from tracecomp.passes.cost.machine import Machine
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]

MACHINES = {"avx512": Machine(64, 32, in_halves=True), "avx2": Machine(32, 16, l2_bytes=8000, l3_bytes=1 << 18)}
"""Fixed, so that programs are the same wherever they are replayed; the second with caches that little outgrows."""

MAX_BYTES = 64 << 20
"""Graphs with larger values are not run."""


def of(recorded: Recorded, bits: bool) -> dict[str, str]:
    """Return digests by kind: a loop program per machine, and ``bits`` of the outputs on request."""
    found = {}
    with config.override(**recorded.settings):
        for name, machine in MACHINES.items():
            built = _built(recorded, machine)
            _reads_back(recorded, built)
            found[name] = _digest([program_key(built.program), *_constants(built)])
            if bits and name == "avx512" and _may_run(recorded):
                found["bits"] = _bits(recorded, built)
    return found


def _built(recorded: Recorded, machine: Machine) -> Built:
    graph = parse_graph(recorded.graph)
    return build(graph, recorded.aliases, frozen=frozenset(recorded.frozen), machine=machine)


def _reads_back(recorded: Recorded, built: Built) -> None:
    """Refuse a graph or a program that is not well formed, or that changes when its text is read and printed again."""
    verify_program(built.program)
    for stage in built.stages:
        text = print_graph(stage.state)
        assert print_graph(parse_graph(text)) == text, f"{recorded.name}: graph after {stage.name}"
    text = print_program(built.program)
    assert print_program(parse_program(text)) == text, f"{recorded.name}: loop program"


def program_key(program: Program) -> str:
    """Equal for programs that do the same in the same memory, whatever their kernels and variables are called."""
    numbers: dict[str, int] = {}
    kernels = []
    for step in call_steps(program.steps):
        if step.kernel.name not in numbers:
            numbers[step.kernel.name] = len(numbers)
            kernels.append(kernel_key(step.kernel))
    steps = print_program(replace(program, name="")).split("\n\n")[0]
    calls = [_numbered(line.split("  # ")[0], numbers) for line in steps.splitlines()]
    return "\n\n".join(["\n".join(calls), str(program.prepared), *kernels])


def _numbered(line: str, numbers: dict[str, int]) -> str:
    """A line of a printed program; if it calls a kernel, by its number."""
    before, call, rest = line.partition("call ")
    name, bracket, args = rest.partition("(")
    return f"{before}{call}{numbers[name]}{bracket}{args}" if call and not before.strip() else line


def _constants(built: Built) -> Iterator[str]:
    given = (i.data for i in built.graph.inputs if i.role == "constant" and i.data is not None)
    for array in (*given, *built.constants):
        yield f"{array.dtype}{array.shape}{_digest([np.ascontiguousarray(array).tobytes()])}"


def _digest(parts: Iterable[str | bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else part.encode())
    return found.hexdigest()[:16]


# ---- bits


def _may_run(recorded: Recorded) -> bool:
    """Loops that may not end with made-up inputs are left out. So are very large values, and graphs without fixed bits:
    those of ``fast_math`` belong to one processor."""
    if recorded.settings.get("fast_math"):
        return False
    graph = parse_graph(recorded.graph)
    values = [i.value for i in graph.inputs] + [v for n in graph.live_nodes() for v in n.outputs]
    return "while_loop(" not in recorded.graph and all(v.type.nbytes <= MAX_BYTES for v in values)


def _bits(recorded: Recorded, built: Built) -> str:
    """The digest of what the program computes from made-up inputs; an error's name where it raises one."""
    graph = built.graph
    arrays = [_made_up(graph, n) for n in range(len(graph.inputs))]
    arrays += [np.array(c, order="C") for c in built.constants]
    outputs = [
        arrays[recorded.aliases[n]] if n in recorded.aliases else np.zeros(o.value.shape, o.value.dtype.numpy)
        for n, o in enumerate(graph.outputs)
    ]
    try:
        Executable(built.program).run(arrays, outputs)
    except (IndexError, ValueError, ArithmeticError, RuntimeError) as error:
        return type(error).__name__
    return _digest(_plain(o) for o in outputs)


def _made_up(graph: Graph, number: int) -> Array:
    """An input's own data if it is a constant, else numbers that depend on its place and type alone."""
    given = graph.inputs[number]
    if given.data is not None:
        return np.array(given.data, order="C")
    dtype: DType = given.value.dtype
    rng = np.random.Generator(np.random.PCG64([number, given.value.type.numel]))
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, given.value.shape), bool)
    if dtype.kind == "int":
        return np.asarray(rng.integers(0, 3, given.value.shape), dtype.numpy)
    # Quarters from -2 to 2: exact in every type, with ties, both signs and zeros.
    return np.asarray(rng.integers(-8, 9, given.value.shape) / 4, dtype.numpy)


def _plain(array: Array) -> bytes:
    """The bytes, with one spelling of NaN: which one an operation gives is not promised."""
    if array.dtype.kind in "iub":
        return array.tobytes()
    wide = array.astype(np.float64 if array.dtype.itemsize < 16 else np.complex128)
    return np.where(np.isnan(wide), np.nan, wide).tobytes()
