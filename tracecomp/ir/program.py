"""Kernels, and programs: which kernels run on which memory, in what order. The grammar stands in ``ir/loops.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from tracecomp.base.errors import Source
from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import Buffer, Stmt
from tracecomp.ir.values import Node


@immutable
class Kernel:
    """A function over buffers. Between top-level statements all threads meet; ``writes`` names the written params.

    ``schedules`` say, loop nest by loop nest, how its loops were chosen, as text; not part of the kernel's identity.
    """

    name: str
    params: tuple[Buffer, ...]
    writes: frozenset[str]
    body: tuple[Stmt, ...]
    schedules: tuple[str, ...] = field(default=(), compare=False)


@immutable
class Slot:
    """Memory of a program.

    ``space`` is "input" or "output" (``position`` in the call table), or "arena" (``position`` in bytes).
    ``lifetime`` numbers the value that lies in the arena there; 0: none, or one that checked programs do not follow.
    """

    name: str
    space: str
    position: int
    nbytes: int
    lifetime: int = field(default=0, compare=False)


@immutable
class Ref:
    """A slot at a byte offset that may depend on the variables of surrounding ``repeat`` steps."""

    slot: Slot
    offset: Index = field(default_factory=Index)


@immutable
class CallStep:
    """Run ``kernel`` on ``args``. ``label`` names what it computes (for profiles and index errors).

    ``nodes`` are the graph nodes that it computes, where they are known; not part of what the step does.
    """

    kernel: Kernel
    args: tuple[Ref, ...]
    label: str = ""
    nodes: tuple[Node, ...] = field(default=(), compare=False)


@immutable
class RepeatStep:
    var: Var
    steps: tuple[Step, ...]


@immutable
class WhenStep:
    """Run ``then`` or ``otherwise``, by a bool in memory."""

    condition: Ref
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@immutable
class WhileStep:
    """Run ``test``, which leaves a bool at ``condition``; while it is true, run ``steps`` and ``test`` again."""

    test: tuple[Step, ...]
    condition: Ref
    steps: tuple[Step, ...]


Step = CallStep | RepeatStep | WhenStep | WhileStep


@immutable
class Program:
    """Everything one executable does. ``inputs`` and ``outputs`` are the slots of the call table, in order.

    ``prepared`` is a bool in the arena that callers set: whether the preparation that an earlier call has left there,
    made of inputs that last, may be used. ``fast_math``: its arithmetic may be fused and regrouped, and some of its
    functions have larger errors. ``checked``: every access is held against the memory that it may touch.
    ``sources`` are the user's lines of graph nodes, for readers of its code.
    """

    name: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    arena_bytes: int
    steps: tuple[Step, ...]
    prepared: Slot | None = None
    fast_math: bool = False
    checked: bool = False
    sources: Mapping[object, Source] = field(default_factory=dict, compare=False)


def step_bodies(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps nested in ``step``, in the order in which its calls are numbered."""
    match step:
        case RepeatStep(_, steps):
            return (steps,)
        case WhenStep(_, then, otherwise):
            return (then, otherwise)
        case WhileStep(test, _, steps):
            return (test, steps)
    return ()


def call_steps(steps: tuple[Step, ...]) -> Iterator[CallStep]:
    """Every kernel call, in order of their numbers."""
    for step in steps:
        if isinstance(step, CallStep):
            yield step
        for body in step_bodies(step):
            yield from call_steps(body)
