"""The public parts of ``torch._dynamo``: there they belong to the capture of Python byte code, here to recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp import compiled
from tracecomp._dynamo import config, eval_frame
from tracecomp.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    substitute_in_graph,
)
from tracecomp.compiler import compile as _compile
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.optimized_module import OptimizedModule

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph",
    "eval_frame", "explain", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
    "mark_static_address", "maybe_mark_dynamic", "optimize", "reset", "run", "substitute_in_graph",
]  # fmt: skip


def disallow_in_graph(fn: Any) -> Any:
    """``fn``; see ``disable``."""
    return fn


def graph_break(msg: str = "") -> None:
    """Nothing: a recording need not end for Python to run."""


def mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...], **bounds: Any) -> None:
    """Nothing: ``compile(dynamic=True)`` finds out which sizes vary from the calls."""


def maybe_mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Nothing; see ``mark_dynamic``."""


def mark_static(t: Any, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Nothing: sizes are fixed unless ``compile(dynamic=True)`` says otherwise."""


def mark_static_address(t: Tensor, guard: bool = False) -> None:
    """Nothing: the memory of captured state does not move."""


def run(fn: Any = None) -> Any:
    """``fn``."""
    return run if fn is None else fn


def optimize(backend: str = "inductor", *, nopython: bool = False, disable: bool = False, **options: Any) -> Any:
    """``compile`` under its older name."""
    return _compile(backend=backend, fullgraph=nopython or None, disable=disable, dynamic=options.get("dynamic"))


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Callable[..., str]:
    """A function that compiles ``f`` for the arguments it is given, and says what was recorded and what fused."""

    def tell(*args: Any, **kwargs: Any) -> str:
        made = compiled.compile(f)
        made(*args, **kwargs)
        made(*args, **kwargs)
        return str(made.explain(*args, **kwargs))

    return tell(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else tell  # type: ignore[return-value]
