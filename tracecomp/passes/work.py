"""How much a kernel does, read off its loops: the measure by which programs are worth sharing among threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tracecomp.ir.loops import Check, Kernel, Let, Loop, Stmt, Store, Update, children
from tracecomp.passes.cost import expr_cost

# Less than this, in scalar operations, one thread finishes in a few hundred microseconds.
WORTH_THREADS = 1 << 24


def kernel_work(kernel: Kernel) -> float:
    """Scalar operations of one run; a fused multiply-add counts as one."""
    return sum(_work(kernel.body, 1))


def _work(body: Iterable[Stmt], times: int) -> Iterator[float]:
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                yield from _work(inner, times * var.extent)
            case Let(_, value) | Store(_, _, value) | Check(value):
                yield times * (expr_cost(value) + 0.25)
            case Update(_, args):
                yield times * (1 + sum(map(expr_cost, args)))
            case _:
                yield from _work(children(stmt), times)


def on_one_thread(kernel: Kernel) -> Kernel:
    """The kernel with its loops not shared among threads."""
    body = tuple(replace(s, kind="serial") if isinstance(s, Loop) and s.kind == "parallel" else s for s in kernel.body)
    return replace(kernel, body=body)
