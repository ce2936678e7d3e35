"""``python -m benchmarks.tuning FIELD [FACTOR ...]``: how much a tuned number of schedules matters, and for what.

The field of ``passes/cost/tuning.py`` is multiplied by each factor (by default a half and two). Programs whose loops
change run in turns with the shipped value. The result is time over time: below 1 the other value is better. With one
thread it is processor time. Bits are compared as well. Without a field, all are listed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.nn import functional as F
from tracecomp.passes.building import Built, build
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.cost.tuning import Tuning
from tracecomp.runtime.executable import Executable

TURNS = 25
SHORTEST = 0.002
"""Seconds of a measurement: shorter programs run several times."""

Shapes = tuple[tuple[int, ...], ...]


def _gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    def of_last(*args: Any) -> Any:
        leaf = args[-1].detach().requires_grad_()
        return torch.autograd.grad(fn(*args[:-1], leaf).sum(), leaf)[0]

    return of_last


def _conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: F.conv2d(x, w, **options)


PROGRAMS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "product 512": (lambda a, b: a @ b, ((512, 512), (512, 512))),
    "product, long sum": (lambda a, b: a @ b, ((256, 4096), (4096, 256))),
    "product, few rows": (lambda a, b: a @ b.t(), ((8, 1024), (1024, 1024))),
    "product, transposed": (lambda a, b: a.t() @ b, ((2048, 512), (2048, 256))),
    "batched product": (lambda a, b: a @ b, ((48, 128, 64), (48, 64, 128))),
    "attention": (F.scaled_dot_product_attention, ((4, 8, 256, 64),) * 3),
    "softmax": (lambda x: torch.softmax(x, -1), ((2048, 512),)),
    "short rows": (lambda x: torch.softmax(x, -1), ((20000, 32),)),
    "layer norm": (lambda x: F.layer_norm(x, (768,)), ((1024, 768),)),
    "column sums": (lambda x: x.sum(0), ((4096, 1024),)),
    "transpose": (lambda x: x.t().contiguous(), ((2048, 1536),)),
    "elementwise": (lambda a, b: torch.tanh(a) * b + a, ((1 << 19,), (1 << 19,))),
    "gather": (lambda x, n: x[(n.abs() * 300).long() % 1000], ((1000, 64), (20000,))),
    "convolution": (_conv(padding=1), ((4, 64, 28, 28), (64, 64, 3, 3))),
    "first layer": (_conv(padding=3, stride=2), ((4, 3, 112, 112), (64, 3, 7, 7))),
    "depthwise": (_conv(padding=1, groups=96), ((4, 96, 28, 28), (96, 1, 3, 3))),
    "weights' gradient": (_gradient(_conv(padding=1)), ((4, 48, 28, 28), (64, 48, 3, 3))),
    "depthwise gradient": (_gradient(_conv(padding=1, groups=96)), ((4, 96, 28, 28), (96, 1, 3, 3))),
}


class _Run:
    """A program with operands."""

    def __init__(self, graph: Graph, built: Built, arrays: Sequence[Any], threads: int) -> None:
        self.executable, self.threads = Executable(built.program), threads
        given = iter(arrays)
        inputs = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
        self.inputs = [*(np.array(a, order="C") for a in inputs), *built.constants]
        self.outputs = [np.zeros(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
        self.times = 1
        self.times = max(1, round(SHORTEST / min(self.seconds() for _ in range(3))))

    def seconds(self) -> float:
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        start = clock()
        for _ in range(self.times):
            self.executable.run(self.inputs, self.outputs, self.threads)
        return (clock() - start) / self.times


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("field", nargs="?", choices=[f.name for f in fields(Tuning)], help="which number")
    parser.add_argument("factors", nargs="*", type=float, default=[], help="by which it is multiplied")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(args)
    if options.field is None:
        print("\n".join(f"{f.name} = {f.default}" for f in fields(Tuning)))
        return 0
    shipped = getattr(host().tuning, options.field)
    for factor in options.factors or (0.5, 2.0):
        value = type(shipped)(shipped * factor)
        machine = replace(host(), tuning=replace(host().tuning, **{options.field: value}))
        print(f"{options.field} {shipped} -> {value}, {options.threads} threads")
        for name, line in compared(machine, options.threads):
            print(f"  {name:<22} {line}", flush=True)
    return 0


def compared(
    machine: Machine, threads: int, programs: Mapping[str, tuple[Callable[..., Any], Shapes]] = PROGRAMS
) -> list[tuple[str, str]]:
    """A line for each program whose loops are others on ``machine``."""
    found = []
    rng = np.random.default_rng(0)
    for name, (fn, shapes) in programs.items():
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        graph = torch.trace(fn, *map(torch.from_numpy, arrays))
        ours, other = build(graph), build(graph, machine=machine)
        if print_program(ours.program) == print_program(other.program):
            continue
        runs = [_Run(graph, built, arrays, threads) for built in (ours, other)]
        pairs = [(runs[0].seconds(), runs[1].seconds()) for _ in range(TURNS)]
        ratio, before = median(b / a for a, b in pairs), median(a for a, _ in pairs)
        bits = all(a.tobytes() == b.tobytes() for a, b in zip(runs[0].outputs, runs[1].outputs, strict=True))
        found.append((name, f"{before * 1e3:8.3f} ms, ratio {ratio:.2f}{'' if bits else ', BITS DIFFER'}"))
    return found or [("", "changes none of the programs")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
