"""symbolic_trace: a function or module as a module with generated code."""

from __future__ import annotations

import functools as functools
from collections.abc import Callable
from types import FunctionType as FunctionType
from typing import Any

from tracecomp._C import ScriptObject as ScriptObject
from tracecomp.fx._compatibility import compatibility as compatibility
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.patcher import _autowrap_check as _autowrap_check
from tracecomp.fx.patcher import _create_wrapped_func as _create_wrapped_func
from tracecomp.fx.patcher import _find_proxy as _find_proxy
from tracecomp.fx.patcher import _orig_module_call as _orig_module_call
from tracecomp.fx.patcher import _orig_module_getattr as _orig_module_getattr
from tracecomp.fx.patcher import _patch_wrapped_functions as _patch_wrapped_functions
from tracecomp.fx.patcher import _Patcher as _Patcher
from tracecomp.fx.patcher import _wrapped_fns_to_patch as _wrapped_fns_to_patch
from tracecomp.fx.proxy import Proxy as Proxy
from tracecomp.fx.tracer import PH, PHBase, Tracer, wrap
from tracecomp.nn.module import Module

__all__ = ["PH", "PHBase", "Tracer", "symbolic_trace", "wrap"]


def symbolic_trace(root: Module | Callable[..., object], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Return ``root`` as a module whose ``forward`` is generated from the graph of its operations.

    Tracing runs it on proxies of its arguments; TraceError if its operations depend on their values.

    Example:
        >>> import tracecomp as torch
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        >>> print(traced.code.strip())
        def forward(self, x):
            relu = torch.relu(x);  x = None
            add = relu + 1;  relu = None
            return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
