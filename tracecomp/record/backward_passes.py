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
        self.origin: Origin | None = None  # the origin of nodes recorded while a pass runs
        self.foreign: str | None = None  # the line of a pass that ran a node older than the call
        self.outer: BackwardPasses | None = None  # those of a recording that this one is part of
        self.contributions: dict[Edge, list[Tensor]] | None = None  # to each gradient, as they come, in its derivation

    def step(self, node: Node) -> None:
        """Record that a pass runs ``node``: its recorded nodes belong to the line that created ``node``."""
        made = node.origin
        self.origin = None if made is None else Origin(made.source, (*made.scope, "backward"))
        self._look_for_foreign(node)

    def _look_for_foreign(self, node: Node) -> None:
        if node.number < self._started and self.foreign is None:
            self.foreign = str(user_source() or "a line of the library")
            self._refusals.blame(self._refusals.line())
        if self.outer is not None:
            self.outer._look_for_foreign(node)

    def contribute(self, found: Sequence[Tensor | None], edges: Sequence[Edge]) -> None:
        """Note that a node has sent the gradients ``found`` to ``edges``."""
        if self.contributions is not None:
            for edge, grad in zip(edges, found, strict=False):
                if edge is not None and grad is not None:
                    self.contributions.setdefault(edge, []).append(grad)
