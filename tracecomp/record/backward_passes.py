"""State of a recording about backward passes within the call."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.base.errors import user_source
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Edge, Node
from tracecomp.ir.graph import Origin
from tracecomp.record.refusals import Refusals


class BackwardPasses:
    """Backward passes of one recording, which began when ``started`` nodes of gradient histories had been made."""

    def __init__(self, started: int, refusals: Refusals) -> None:
        self._started = started
        self._refusals = refusals
        self.origin: Origin | None = None  # of the node being recorded, during a pass
        self.foreign: str | None = None  # the line of a pass that met nodes from before the call
        self.contributions: dict[Edge, list[Tensor]] | None = None  # to each gradient, as they come, where asked for

    def step(self, node: Node) -> None:
        """Record that a pass runs ``node``: its recorded nodes belong to the line that created ``node``."""
        made = node.origin
        self.origin = None if made is None else Origin(made.source, (*made.scope, "backward"))
        if node.number < self._started and self.foreign is None:
            self.foreign = str(user_source() or "a line of the library")
            self._refusals.blame(self._refusals.line())

    def contribute(self, found: Sequence[Tensor | None], edges: Sequence[Edge]) -> None:
        """Note that a node has sent the gradients ``found`` to ``edges``."""
        if self.contributions is not None:
            for edge, grad in zip(edges, found, strict=False):
                if edge is not None and grad is not None:
                    self.contributions.setdefault(edge, []).append(grad)
