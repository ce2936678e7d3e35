"""Random transposes, and operators fused with them, against numpy: ``python -m tests.fuzz.turned --minutes 60``.

The machine model has small caches, so that small memory has the panels, remainders, prefetches and stores past the
caches of large memory. Arrays begin anywhere within a line of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.codegen.running import SHARING, same_bits
from tests.fuzz.command import by_command
from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.ir.types import TensorType, float16, float32, float64, int32, int64, uint8
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import host, on
from tracecomp.runtime.executable import Executable

EXTENTS = (1, 2, 3, 5, 8, 16, 17, 31, 32, 40, 64, 97, 130, 200)
MOST = 60_000
"""Elements."""


def made(seed: int) -> tuple[Graph, list[Any], Any]:
    """Return a graph, its operands, and its expected results."""
    rng = np.random.default_rng(seed)
    dtype = (float32, float64, float16, int32, int64, uint8)[int(rng.integers(6))]
    shape = [int(rng.choice(EXTENTS)) for _ in range(int(rng.integers(2, 5)))]
    while np.prod(shape) > MOST:
        shape[int(np.argmax(shape))] //= 3
    order = tuple(int(d) for d in rng.permutation(len(shape)))
    graph = Graph(f"turned{seed}")
    x = graph.add_input(TensorType(dtype, tuple(shape)), "x")
    arrays = [(rng.integers(-8, 9, shape) / (4 if dtype.kind == "float" else 1)).astype(dtype.numpy)]
    value, wanted = x, arrays[0]
    if rng.random() < 0.3:
        start = int(rng.integers(shape[0]))
        stops = tuple(shape)
        value = graph.apply("slice", x, starts=(start, *[0] * (len(shape) - 1)), stops=stops, steps=(1,) * len(shape))
        wanted = wanted[start:]
    if rng.random() < 0.2:
        value, wanted = graph.apply("flip", value, axes=(0,)), wanted[::-1]
    value, wanted = graph.apply("permute", value, dims=order), wanted.transpose(order)
    if rng.random() < 0.5:
        other = graph.add_input(value.type, "y")
        arrays.append((rng.integers(-8, 9, value.shape)).astype(dtype.numpy))
        value, wanted = graph.apply("add", value, other), wanted + arrays[1]
    graph.add_output(value)
    if rng.random() < 0.3:
        graph.add_output(graph.apply("mul", x, x))
        return graph, arrays, [wanted, arrays[0] * arrays[0]]
    return graph, arrays, [wanted]


def difference(seed: int) -> str | None:
    """Return the difference between native code and numpy; None if they agree."""
    graph, arrays, wanted = made(seed)
    rng = np.random.default_rng(seed)
    machine = replace(SHARING if seed % 2 else host(), l2_bytes=8000, l3_bytes=1 << 16)
    with config.override(verify=True), on(machine), np.errstate(all="ignore"):
        executable = Executable(build(graph).program)
    for threads in (1, 2):
        given = [begun(a, int(rng.integers(16)) * (rng.random() < 0.5)) for a in arrays]
        found = [begun(np.zeros(w.shape, w.dtype), int(rng.integers(16)) * (rng.random() < 0.3)) for w in wanted]
        executable.run(given, found, threads=threads)
        for n, (a, b) in enumerate(zip(wanted, found, strict=True)):
            if not same_bits(np.ascontiguousarray(a), b):
                return f"seed {seed}, {threads} threads: output {n} differs\n{graph}"
    return None


def begun(array: Any, start: int) -> Any:
    """A copy that begins ``start`` elements after a line of memory."""
    memory = np.zeros(array.nbytes + 4096, np.uint8)
    first = -memory.ctypes.data % 64 + start * array.itemsize
    placed = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def main() -> int:
    return by_command(__doc__ or "", "transposes", difference)


if __name__ == "__main__":
    raise SystemExit(main())
