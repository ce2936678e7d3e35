"""Capture of one call of a program: its graph, the arrays it reads, and its eager results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import CaptureError
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph
from tracecomp.record.binding import read, tensor_of
from tracecomp.record.capture import Refusal, record
from tracecomp.record.pytree import flatten
from tracecomp.record.recording import Recording
from tracecomp.record.results import Made

Array = np.ndarray[Any, Any]

SETTLING = 4
"""Calls after which a program must not create new state (optimizers create theirs at the first step)."""


@dataclass(frozen=True)
class Captured:
    """A recorded call. ``eager[k]`` is what the program computed for graph output ``k`` (None: not visible outside)."""

    recording: Recording
    arrays: list[Array]
    eager: list[Array | None]

    @property
    def graph(self) -> Graph:
        return self.recording.graph

    def backward(self, outputs: Sequence[Array]) -> tuple[Graph, list[Array]] | None:
        """The graph of the derivative, if results have one, and its operands: saved values, and random gradients."""
        split = self.recording.split
        if split is None:
            return None
        position = {id(b): k for k, b in enumerate(self.recording.inputs)}
        saved = [outputs[s] if isinstance(s, int) else self.arrays[position[id(s)]] for s in split.saved]
        rng = np.random.default_rng(0)
        given = [i.value for i in split.backward.inputs if i.role != "constant"][len(saved) :]
        gradients = [np.asarray(rng.standard_normal(v.shape)).astype(v.dtype.numpy) for v in given]
        return split.backward, [*saved, *gradients]


def capture(fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Captured:
    """Record ``fn`` on these arguments, then run it once more eagerly and restore its state.

    CaptureError if the program cannot be recorded or creates new state in every call.
    """
    recording, leaves = settled(fn, args, kwargs)
    # Copied before the eager run, which overwrites states.
    arrays = [np.array(read(b, leaves)) for b in recording.inputs]
    targets = [read(b, leaves) for b, _ in recording.updates]
    before = [t.copy() for t in targets]
    holders = [tensor_of(b, leaves) for b, _ in recording.grads]
    gradients = [(t, t._grad, None if t._grad is None else t._grad._data.copy()) for t in holders]
    values: list[Any] = []
    flatten(fn(*args, **kwargs), values)
    eager: list[Array | None] = [None] * len(recording.graph.outputs)
    for made, value in zip(recording.results, values, strict=True):
        # Results by output number; results that represent other tensors have none.
        if isinstance(made, Made):
            eager[made.number] = _as_output(made, value)
    for tensor, (_, new) in zip(holders, recording.grads, strict=True):
        if isinstance(new, Made) and tensor._grad is not None:
            eager[new.number] = _as_output(new, tensor._grad)
    # States are restored at once, and the writes counted, as the next run must see the earlier values.
    for (_, number), target, old in zip(recording.updates, targets, before, strict=True):
        eager[number] = target.copy()
        np.copyto(target, old)
    for b, times in recording.writes:
        tensor_of(b, leaves)._shared_storage().wrote(times)
    for tensor, gradient, old_data in gradients:
        tensor._grad = gradient
        if gradient is not None and old_data is not None:
            np.copyto(gradient._data, old_data)
            gradient._shared_storage().wrote()
    return Captured(recording, arrays, eager)


def _as_output(made: Made, t: Tensor) -> Array:
    """The elements of ``t`` in the form of the output that represents it."""
    return np.array(t._data if made.order is None else t._data.transpose(made.order), order="C")


def settled(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[Recording, list[Any]]:
    """A recording that fits the next call with these arguments, and the leaves of the arguments."""
    name = getattr(fn, "__name__", type(fn).__name__)
    for _ in range(SETTLING):
        _, recording = record(fn, args, kwargs, name)
        if isinstance(recording, Refusal):
            raise CaptureError(recording.reason)
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        if recording.unsettled is None and recording.guards.miss(structure, leaves) is None:
            return recording, leaves
    raise CaptureError(f"{name} differs at every call: none of {SETTLING} recordings fitted the next call")
