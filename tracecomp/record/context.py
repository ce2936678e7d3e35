"""Interfaces of the recorder for the parts of a recording, which are in lower layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Value
from tracecomp.record.pytree import Leaves
from tracecomp.record.size_range import Conditions
from tracecomp.record.traced_value import GradSlot, Predicate, TracedValue


class OptimizerLike(Protocol):
    """The parts of an optimizer that a recording reads."""

    @property
    def state(self) -> Mapping[Any, Any]:
        """The state of each parameter."""

    @property
    def param_groups(self) -> Sequence[Mapping[str, Any]]:
        """The parameters with their options."""


class RecordingContext(Protocol):
    """The recorder's interface for symbolic sizes and numbers."""

    open: bool
    quiet: bool
    sized_ints: list[Any]
    """Weak references to the sizes that the program was given."""

    @property
    def conditions(self) -> Conditions:
        """The sizes for which the recording holds."""

    def observe(self, t: Tensor, seen: object) -> None:
        """Note that Python saw the value of ``t``."""

    def note_number(self, number: Any) -> None:
        """Note a number that is followed."""

    def size_tensor(self, number: int) -> Tensor:
        """A size as an input of the graph."""


class Capturing(Protocol):
    """The recorder's interface for the table of traced values."""

    def depend(self, predicates: Sequence[Predicate]) -> None:
        """Hold the recording to values that were seen."""

    def above(self, t: Tensor) -> Tensor | None:
        """The tensor that ``t``, which comes from outside, is a view or an alias of."""

    def capture(self, t: Tensor) -> TracedValue:
        """Make a tensor from outside an input."""

    def resized(self, t: Tensor, before: tuple[int, ...]) -> Value:
        """Refuse a shape of ``t`` that differs from that of its graph value."""


class Bound(RecordingContext, Protocol):
    """The recorder's interface for the inputs of a recording."""

    def bound(self, t: Tensor, value: Value) -> None:
        """Called when ``value``, an input, represents ``t``."""


class MetInputs(Protocol):
    """Tensors from outside, by identity, with the known facts."""

    names: dict[int, str]
    arguments: dict[int, Tensor]
    state: dict[int, Tensor]


class MetTensors(Protocol):
    """The tensors from outside that a program has used."""

    outside: dict[int, Tensor]
    requires_grad: dict[int, bool]


class MetChanges(Protocol):
    """The call's changes of tensors from outside."""

    flags: dict[int, tuple[Tensor, bool]]
    grads: dict[int, GradSlot]


class MetPython(Protocol):
    """The call's reads of Python objects."""

    watched: dict[tuple[int, str], tuple[Any, str]]
    modules: dict[int, Any]
    optimizers: dict[int, OptimizerLike]


class Met(Protocol):
    """Everything that guards take over from a recorder at the end of a call."""

    @property
    def inputs(self) -> MetInputs: ...

    @property
    def values(self) -> MetTensors: ...

    @property
    def changes(self) -> MetChanges: ...

    @property
    def python(self) -> MetPython: ...

    leaves: Leaves

    def above(self, t: Tensor) -> Tensor | None:
        """The tensor that ``t``, which comes from outside, is a view or an alias of."""
