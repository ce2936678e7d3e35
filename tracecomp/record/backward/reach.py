"""Reachability from the results of a call: histories, whether they are spent, tensors that stay alive."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracecomp.autograd.function import tensors_within
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import Source
from tracecomp.base.gc_pause import collected
from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.grad_fn import OpNode
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node, TensorBase
from tracecomp.record.recorder import Recorder


def edges(roots: Sequence[Tensor]) -> list[tuple[Node, int]]:
    return [(t.grad_fn, t._output_nr) for t in roots if t.grad_fn is not None]


def was_spent(t: Tensor) -> bool:
    """Whether a backward pass has freed the history of ``t``, or a tensor saved by it was written to since."""
    return any(n.spent() for n in history_of([t]))


def reachable(tensors: Sequence[TensorBase]) -> set[int]:
    """The ids of ``tensors``, what they are views of, their gradients, and what histories and hooks hold."""
    found: set[int] = set()
    nodes: set[Node] = set()
    stack: list[TensorBase] = list(tensors)
    while stack:
        t = stack.pop()
        if id(t) in found:
            continue
        found.add(id(t))
        stack += [x for x in (t._base, t._grad) if x is not None]
        for node in history_of([t]) - nodes if history_if_allowed(t) not in nodes else ():
            nodes.add(node)
            stack.extend(node.held())
            packed = [(x.packed, x.unpack) for x in node.packed()] if isinstance(node, OpNode) else []
            stack.extend(tensors_within((node.tensor_hooks, node.pre_hooks, node.post_hooks, packed)))
    return found


def history_of(roots: Sequence[TensorBase]) -> set[Node]:
    found: set[Node] = set()
    stack = [fn for t in roots if (fn := history_if_allowed(t)) is not None]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(e[0] for e in node.edges if e is not None)
    return found


def edges_from(root: tuple[Node, int], stop: Collection[tuple[Node, int]]) -> set[tuple[Node, int]]:
    """The edges on the ways from ``root``, which end at ``stop``."""
    found: set[tuple[Node, int]] = set()
    stack = [root]
    while stack:
        edge = stack.pop()
        if edge not in found:
            found.add(edge)
            stack.extend(e for e in edge[0].edges if e is not None and edge not in stop)
    return found


def new_state(recorder: Recorder, kept: Sequence[Tensor]) -> BreakReason | None:
    """Says so when tensors live on outside the call, other than what ``kept`` leads to."""
    recorder.forget()
    keep = reachable(kept)

    def alive() -> list[tuple[Source | None, int]]:
        return [(s, n) for ref, s, n in recorder.values.made if (t := ref()) is not None and id(t) not in keep]

    if collected(lambda: not alive()):
        return None
    for _, line in alive():
        recorder.refusals.blame(line)
    lines = sorted({"a line of the library" if s is None else str(s) for s, _ in alive()})
    return BreakReason(
        f"stores new tensors outside of the call, created at {', '.join(lines)}", Section.STATE,
        "Return them, or write into existing tensors in place (copy_, add_)",
    )  # fmt: skip
