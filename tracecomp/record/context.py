"""What the parts of a recording know of the recorder, which stands above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tracecomp.eager.tensor import Tensor
from tracecomp.record.pytree import Leaves
from tracecomp.record.size_range import Conditions
from tracecomp.record.traced_value import GradSlot


class OptimizerLike(Protocol):
    """What a recording reads of an optimizer."""

    @property
    def state(self) -> Mapping[Any, Any]:
        """What it keeps for each parameter."""

    @property
    def param_groups(self) -> Sequence[Mapping[str, Any]]:
        """The parameters with their options."""


class RecordingContext(Protocol):
    """What symbolic sizes and numbers ask of the recorder that they belong to."""

    open: bool
    quiet: bool

    @property
    def conditions(self) -> Conditions:
        """The sizes for which the recording holds."""

    def observe(self, t: Tensor, seen: object) -> None:
        """Note that Python saw the value of ``t``."""

    def note_number(self, number: Any) -> None:
        """Note a number that is followed."""

    def size_tensor(self, number: int) -> Tensor:
        """A size as an input of the graph."""


class Met(Protocol):
    """What a recorder has met at the end of a call, which guards take over."""

    leaves: Leaves
    arguments: dict[int, Tensor]
    outside: dict[int, Tensor]
    state: dict[int, Tensor]
    flags: dict[int, tuple[Tensor, bool]]
    requires_grad: dict[int, bool]
    names: dict[int, str]
    watched: dict[tuple[int, str], tuple[Any, str]]
    modules: dict[int, Any]
    optimizers: dict[int, OptimizerLike]
    grads: dict[int, GradSlot]

    def above(self, t: Tensor) -> Tensor | None:
        """The tensor that ``t``, which comes from outside, is a view or an alias of."""
