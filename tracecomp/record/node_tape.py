"""The nodes of an update, to add them again for other parameters of the same types.

An optimizer runs one function for each parameter. Only the first call of each kind is recorded operator by operator.
The graph gets copies of its nodes for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph, Origin, Value
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import TensorType

Ref = Value | int
"""An operand of a step: a value that every update reads, the result of a step by number, or a tensor by ``~number``."""


class Repeating(Protocol):
    """The recorder's interface for tapes."""

    graph: Graph

    def value(self, t: Tensor) -> Value: ...

    def is_made(self, t: Tensor) -> bool: ...

    def set_value(self, target: Tensor, new: Value) -> None: ...


class Applied(NamedTuple):
    """One operator. Its results have the next numbers."""

    op: Op
    reads: tuple[Ref, ...]
    attrs: Attrs
    types: Sequence[TensorType]
    origin: Origin


class Written(NamedTuple):
    """A write of ``value`` to the tensor ``~target``."""

    target: int
    value: Ref
    origin: Origin


class NodeTape:
    """The operators and writes of one update, in order, noted by the recorder while it runs.

    Tensors are found by identity and not by graph value: two that are equal in this update may differ in others.
    ``valid`` says whether the steps are the same for other tensors of the same types; ``results`` counts the results of
    operators. ``given`` are tensors of the update that the call made, such as the gradient.
    """

    def __init__(self, recorder: Repeating, given: Sequence[Tensor]) -> None:
        self.valid = True
        self.results = 0
        self._recorder = recorder
        self._tensors = list(given)
        self._refs: dict[int, Ref] = {id(t): ~n for n, t in enumerate(given)}
        self._values: list[Value] = []
        self._held: list[Tensor] = []  # so that identities stay theirs
        self._steps: list[Applied | Written] = []

    def applied(
        self, op: Op, operands: Sequence[object], values: Sequence[Value], attrs: Attrs, types: Sequence[TensorType],
        outs: Sequence[Tensor], made: Sequence[Value],
    ) -> None:  # fmt: skip
        """Note that ``op`` made ``outs``; ``values`` and ``made`` are the graph values of operands and results."""
        reads = tuple([self._ref(x, v) for x, v in zip(operands, values, strict=True)])
        self.valid = self.valid and not op.is_separate
        self.results += len(outs)
        self._held += outs
        if not any(isinstance(ref, int) for ref in reads):  # the same node in every update
            self._refs.update({id(t): v for t, v in zip(outs, made, strict=True)})
            return
        self._steps.append(Applied(op, reads, attrs, types, self._recorder.graph.here))
        for t, v in zip(outs, made, strict=True):
            self._refs[id(t)] = len(self._values)
            self._values.append(v)

    def wrote(self, target: Tensor, value: Tensor, new: Value) -> None:
        """Note that the elements of ``target`` became ``value``, whose graph value is ``new``."""
        ref = self._ref(value, new)
        if id(target) not in self._refs and not self._recorder.is_made(target):
            self._meet(target)
        place = self._refs.get(id(target))
        if isinstance(place, int) and place < 0:
            self._steps.append(Written(~place, ref, self._recorder.graph.here))
        else:
            self.valid = False

    def _ref(self, x: object, value: Value) -> Ref:
        if not isinstance(x, Tensor):
            return value
        ref = self._refs.get(id(x))
        if ref is None:
            if not self._recorder.is_made(x):
                return self._meet(x)
            # A number of the options. A view would follow writes to its base.
            self.valid = self.valid and x._look is None
            return value
        before = ref if isinstance(ref, Value) else value if ref < 0 else self._values[ref]
        self.valid = self.valid and before is value  # else a write has changed what a view shows
        return ref

    def _meet(self, t: Tensor) -> int:
        """Number a tensor from outside."""
        self._tensors.append(t)
        ref = self._refs[id(t)] = ~(len(self._tensors) - 1)
        return ref

    def close(self, names: Mapping[int, str]) -> list[str] | None:
        """The names of the tensors in the order of their numbers, from ``names`` by identity.

        None if the steps are not valid for other tensors. References to tensors and recorder end here.
        """
        found = [names.get(id(t), "") for t in self._tensors]
        self._refs.clear()
        self._values.clear()
        self._held.clear()
        self._tensors.clear()
        return found if self.valid and all(found) else None

    def add_again(self, tensors: Sequence[Tensor]) -> None:
        """Add the nodes and writes for other ``tensors``, which are in the order of their numbers."""
        recorder, graph, made = self._recorder, self._recorder.graph, list[Value]()

        def value(ref: Ref) -> Value:
            if isinstance(ref, int):
                return made[ref] if ref >= 0 else recorder.value(tensors[~ref])
            return ref

        for step in self._steps:
            graph.here = step.origin
            if isinstance(step, Applied):
                made += graph.add(step.op, list(map(value, step.reads)), step.attrs, step.types)
            else:
                recorder.set_value(tensors[step.target], value(step.value))
