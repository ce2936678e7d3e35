"""A function traced once, on examples, for transforms of its graph: ``vmap``, ``scan``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError, user_source
from tracecomp.eager.modes import host, modes, module_changes, records_history
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tangents import without_levels
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Value
from tracecomp.ir.index import index
from tracecomp.ir.op import Attrs, Indexed, Op
from tracecomp.record.pytree import flatten
from tracecomp.record.recorder import Recorder
from tracecomp.record.traced_value import TracedValue


def _mark(name: str, summary: str) -> Op:
    """The identity, never part of any other graph."""
    return Op(
        name, "elementwise", summary, infer=lambda x: x, impl=lambda x: x,
        loop=Indexed(lambda at, out, reads, types: reads[0]([index(v) for v in at])),
    )  # fmt: skip


DETACH = _mark("detach", "the value without history and tangents")
NO_GRAD = _mark("no_grad", "the value without its history")


class Trace(Recorder):
    """The recording of one example. It records where histories end, and an outer recording continues."""

    holds_opaque = False  # the body of a loop runs in machine code
    repeats_nodes = False  # each node tells whether its result has a history
    random_state: np.ndarray[Any, Any]  # of the program around the traced function

    def __init__(self, name: str, outer: Any) -> None:
        super().__init__(name)
        self.outer = outer
        if outer is not None:
            self.numbers = outer.numbers
            self.backward.outer = outer.backward
            self.trace = outer.trace

    def node(self, op: Op, operands: tuple[object, ...], attrs: Attrs, outs: list[Tensor]) -> None:
        super().node(op, operands, attrs, outs)
        if not records_history():
            for t in outs:
                t._value = TracedValue(self, self._ended(NO_GRAD, t._value.value), t._value.version)

    def alias(self, t: Tensor, base: Tensor) -> None:
        super().alias(t, base)
        t._value = TracedValue(self, self._ended(DETACH, t._value.value), t._value.version)

    def _ended(self, mark: Op, value: Value) -> Value:
        return self.graph.add(mark, (value,), {}, [value.type])[0]

    def above(self, t: Tensor) -> Tensor | None:
        """None: outer tensors represent themselves. Their histories may differ from those of their views."""
        return None

    def host(self, owner: object, key: str, value: object) -> Any:
        modes.recorder = self.outer
        try:
            return host(owner, key)
        finally:
            modes.recorder = self

    def module_ran(self, module: object) -> None:
        if self.outer is not None:
            modes.recorder = self.outer
            try:
                module_changes.ran(module)
            finally:
                modes.recorder = self

    def leave(self, t: Tensor, how: str) -> None:
        """Refuse that an example leaves the graph."""
        cause = f"the function of {self.graph.name} calls {how}, at {user_source()}, but runs once for all values"
        raise CaptureError(str(BreakReason(cause, Section.NUMBERS, "Use tensor operators")))

    def written(self) -> list[Tensor]:
        """Tensors that existed before and were written."""
        return [t for key, t in self.values.outside.items() if self.value(t) is not self.inputs.initial.get(key)]

    def wrote_grad(self) -> bool:
        return any(slot.written for slot in self.changes.grads.values())


def traced(
    trace: Trace,
    func: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    inputs: Sequence[Tensor],
) -> tuple[list[Any], Any]:
    """Run ``func`` under ``trace``, with ``inputs`` as the graph's arguments: result leaves and their structure.

    Tangents of derivatives that are being taken pass through what runs the graph, not through the examples.
    The random state is afterwards as it was before.
    """
    trace.random_state = default_generator.state._data.copy()
    modes.recorder = trace
    try:
        for n, x in enumerate(inputs):
            trace.inputs.bind(x, f"x{n}", "argument")
        leaves: list[Any] = []
        with without_levels():
            structure = flatten(func(*args, **kwargs), leaves)
    finally:
        modes.recorder = trace.outer
        np.copyto(default_generator.state._data, trace.random_state)
    return leaves, structure
