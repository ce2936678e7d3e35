"""Kernels, and programs: which kernels run on which memory, in what order. ``ir/loops.py`` has the grammar."""

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
    """A function over buffers. All threads synchronize between top-level statements; ``writes`` names the written
    params.

    ``schedules`` has the schedule of each loop nest as text; it is not part of the kernel's identity.
    """

    name: str
    params: tuple[Buffer, ...]
    writes: frozenset[str]
    body: tuple[Stmt, ...]
    schedules: tuple[str, ...] = field(default=(), compare=False)


@immutable
class Slot:
    """Memory of a program.

    ``space`` is "input" or "output" (``position`` in the call table), or "arena" (``position`` in bytes). ``lifetime``
    numbers the value that is in the arena there; 0: none, or one that checked programs do not track.
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
    """Run ``kernel`` on ``args``. ``label`` names its computation (for profiles and index errors).

    ``nodes`` are its graph nodes, if known; they do not affect execution.
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

    ``prepared`` is a bool in the arena that callers set: whether the preparation that an earlier call computed from
    frozen inputs is valid. ``fast_math``: its arithmetic may be fused and regrouped, and some of its functions have
    larger errors. ``checked``: every access is checked against the memory that it may touch. ``sources`` are the user's
    lines of graph nodes, for readers of its code.
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
