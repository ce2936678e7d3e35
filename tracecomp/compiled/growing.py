"""Tensors that calls append to: which results continue in the memory of an input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tracecomp.base.interpreter import ARGUMENT_REFERENCES
from tracecomp.eager.room import Room, RoomArray, dtype_of, settle
from tracecomp.ir.graph import Value
from tracecomp.record.binding import tensor_of
from tracecomp.record.dynamic_shapes.instantiate import Growth
from tracecomp.record.pytree import Leaves
from tracecomp.record.recording import Recording, Sizes
from tracecomp.record.results import Made, all_results
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.runtime.aligned import maker

Array = np.ndarray[Any, Any]


def growing(recording: Recording) -> list[Growth]:
    """The results that a call leaves in objects, and that are one of its inputs with more elements at the end.

    Such a result is likely to take the place of that input, so that its memory is free to continue in.
    """
    sizes = recording.sizes
    if sizes is None or recording.split is not None:
        return []
    given = [i.value for i in recording.graph.inputs if i.role != "constant"]
    found: dict[int, Growth] = {}
    for n in _left(recording):
        node = recording.graph.outputs[n].value.node
        if node is None or node.op.name != "concat" or len(node.inputs) != 2:
            continue
        base, new = node.inputs
        axis: int = node.attrs["axis"]
        varies, by = (isinstance(_extent(sizes, v, axis), SymInt) for v in (base, new))
        if base not in given or not varies or by:
            continue
        number = given.index(base)
        if recording.inputs[number].kind in ("argument", "place"):
            found.setdefault(number, Growth(number, n, axis))
    return list(found.values())


def _extent(sizes: Sizes, v: Value, axis: int) -> object:
    return sizes.shapes.get(v, v.shape)[axis]


def _left(recording: Recording) -> list[int]:
    """The outputs of the graph that a call leaves in objects, as they are."""
    results = [r for e in recording.effects for r in e.results] + [r for e in recording.rebound for r in e.results]
    return [r.number for r in all_results(results) if isinstance(r, Made) and r == Made(r.number)]


def room_for(array: Array, shape: tuple[int, ...], axis: int) -> Room:
    """Memory of this shape that begins with the elements of ``array``: where these have room, or else a copy.

    No other call can continue there until ``filled`` sets how many elements are in use.
    """
    extent = array.shape[axis]
    room = array.room if type(array) is RoomArray else None
    if room is None or room.memory.shape != shape or room.used != extent:
        dtype = dtype_of(array)
        room = Room(maker(math.prod(shape) * dtype.itemsize)(shape, dtype), axis, extent)
        room.memory.fill(0)
        room.first(array.shape)[...] = array
    room.used = shape[axis]
    return room


class Appended:
    """The tensors that a call appends to, which end with it unless others hold them."""

    def __init__(self, recording: Recording, growing: Sequence[Growth], leaves: Leaves) -> None:
        bindings = [recording.inputs[g.input] for g in growing]
        self._before: list[tuple[Any, int, int]] = [
            (tensor_of(b, leaves), int(b.kind == "argument"), g.output) for b, g in zip(bindings, growing, strict=True)
        ]

    def part(self, outputs: list[Any]) -> None:
        """Give results other memory than that of tensors that are held elsewhere, now that the call is done."""
        while self._before:
            t, among_leaves, output = self._before.pop()
            if getrefcount(t) > 1 + among_leaves + ARGUMENT_REFERENCES and type(outputs[output]) is RoomArray:
                settle(outputs[output])
