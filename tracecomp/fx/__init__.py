"""Programs as graphs that Python code reads and changes: ``torch.fx``.

``symbolic_trace`` runs a function or module on proxies and records its operations. The graph can be edited; a
``GraphModule`` is its generated source, running. Recordings of ``tracecomp.compile`` are graphs of another kind
(``docs/architecture.md``).
"""

from tracecomp.fx._symbolic_trace import PH, Tracer, symbolic_trace, wrap
from tracecomp.fx.graph import CodeGen, Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.interpreter import Interpreter, Transformer
from tracecomp.fx.node import Node, has_side_effect, map_arg
from tracecomp.fx.proxy import Proxy
from tracecomp.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer",
    "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip
