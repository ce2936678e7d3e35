"""``torch.fx.passes.infra.pass_base``: a pass over a ``GraphModule`` and its result."""

from __future__ import annotations

import abc
from typing import NamedTuple

from tracecomp.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass changed it."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: ``call`` does the work between two checks."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Check the module, run the pass, and check the module again."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass."""

    def requires(self, graph_module: GraphModule) -> None:
        """Raise an error if the pass cannot run on the module."""
        return

    def ensures(self, graph_module: GraphModule) -> None:
        """Raise an error if the result is not as promised."""
        return
