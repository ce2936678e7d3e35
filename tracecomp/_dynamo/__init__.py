"""The public parts of ``torch._dynamo``: in PyTorch they belong to the capture of Python byte code, here to
recordings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tracecomp import compiled
from tracecomp._dynamo import config, eval_frame, exc
from tracecomp._dynamo.counting import reason, with_parts
from tracecomp.base.errors import at_user_line
from tracecomp.compiled.named_options import NAMED_BACKENDS, REGISTERED
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
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import wrap_dim
from tracecomp.ir.graph import Graph
from tracecomp.nn.optimized_module import OptimizedModule
from tracecomp.record.symbolic.sizes import marks_of

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph",
    "eval_frame", "exc", "explain", "graph_break", "is_compiling", "is_dynamo_supported", "list_backends",
    "lookup_backend", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "nonstrict_trace",
    "optimize", "register_backend", "reset", "run", "substitute_in_graph",
]  # fmt: skip


def is_dynamo_supported() -> bool:
    """Return True: ``compile`` is always available."""
    return True


def disallow_in_graph(fn: object) -> Any:
    """``disable(fn)``."""
    return disable(fn)


def nonstrict_trace(traceable_fn: F) -> F:
    """Return ``traceable_fn``: its computation is recorded for any Python inside."""
    return traceable_fn


def register_backend(
    compiler_fn: Callable[..., object] | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Register ``compiler_fn`` under a name; also a decorator. ``compile`` rejects it: it takes PyTorch's graphs.

    AssertionError for an existing name.
    """
    if compiler_fn is None:
        return partial(register_backend, name=name, tags=tags)
    key = name or compiler_fn.__name__
    if key in REGISTERED or key in NAMED_BACKENDS:
        raise AssertionError(at_user_line(f"duplicate name: {key}"))
    REGISTERED[key] = compiler_fn
    return compiler_fn


def lookup_backend(compiler_fn: str | Callable[..., object]) -> Callable[..., object]:
    """Return the registered function of that name. RuntimeError for another name; this package's backends take no
    graphs."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn not in REGISTERED:
        what = "takes functions, not graphs" if compiler_fn in NAMED_BACKENDS else "is not registered"
        raise RuntimeError(at_user_line(f"Invalid backend: '{compiler_fn}' {what}"))
    return REGISTERED[compiler_fn]


def graph_break(msg: str = "") -> None:
    """Break the graph of the calling compiled function here; nothing elsewhere. CaptureError with
    ``fullgraph=True``."""
    if modes.recorder is not None:
        modes.recorder.refuse_here(f"calls graph_break(){f' ({msg})' if msg else ''}")


@dataclass(frozen=True)
class GraphCompileReason:
    """The reason of a graph break."""

    reason: str
    user_stack: tuple[object, ...] = ()
    graph_break: bool = True


@dataclass(frozen=True)
class ExplainOutput:
    """The result of ``explain``, under PyTorch's names; ``str`` of it has more."""

    graphs: list[Graph]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[str]]
    out_guards: list[str]
    compile_times: str
    text: str

    def __str__(self) -> str:
        return self.text


F = TypeVar("F")
Axes = int | list[int] | tuple[int, ...]


def mark_dynamic(t: Tensor, index: Axes, *, min: int | None = None, max: int | None = None, **options: Any) -> None:
    """Make the sizes of ``t`` along these dimensions dynamic, as an argument, from the first recording on.

    ``min`` and ``max`` bound the sizes for which the recording is valid; ValueError at the call when ``t`` is beyond
    them. CaptureError at the call when the program needs to know such a size. ``options`` are PyTorch's and have no
    effect.

    >>> import tracecomp as torch
    >>> f = torch.compile(lambda x: x.sum(0))
    >>> for n in (3, 5, 8, 13):
    ...     x = torch.ones(n, 2)
    ...     torch._dynamo.mark_dynamic(x, 0, min=2)
    ...     total = f(x)
    >>> total, f.recordings
    (tensor([13., 13.]), 2)
    """
    maybe_mark_dynamic(t, index)
    for axis in _axes(t, index):
        marks_of(t).follow[axis] = (min, max)
        marks_of(t).strict.add(axis)


def maybe_mark_dynamic(t: Tensor, index: Axes) -> None:
    """Like ``mark_dynamic``, for programs that may need concrete sizes: these are then recorded separately."""
    for axis in _axes(t, index):
        marks_of(t).follow[axis] = (None, None)
        marks_of(t).fixed.discard(axis)


def mark_static(t: object, index: Axes | None = None) -> None:
    """Never make the sizes of ``t`` along these dimensions, or any, dynamic: each size has a separate recording."""
    if isinstance(t, Tensor):
        axes = _axes(t, tuple(range(t.ndim)) if index is None else index)
        marks_of(t).fixed.update(axes)
        for axis in axes:
            marks_of(t).follow.pop(axis, None)
            marks_of(t).strict.discard(axis)


def _axes(t: Tensor, index: Axes) -> list[int]:
    """The selected dimensions. IndexError for one that ``t`` does not have."""
    return [wrap_dim(axis, t.ndim) for axis in ([index] if isinstance(index, int) else index)]


def mark_static_address(t: Tensor, guard: bool = False) -> None:
    """Do nothing: the memory of captured state does not move."""


def run(fn: object = None) -> Any:
    """Return ``fn``."""
    return run if fn is None else fn


def optimize(backend: str = "inductor", *, nopython: bool = False, disable: bool = False, **options: Any) -> Any:
    """``compile`` under its older name."""
    return _compile(backend=backend, fullgraph=nopython or None, disable=disable, dynamic=options.get("dynamic"))


def explain(f: Callable[..., object], *extra_args: Any, **extra_kwargs: Any) -> Callable[..., ExplainOutput]:
    """Return a function that compiles ``f`` for its arguments, and reports recordings and fusion.

    >>> import tracecomp as torch
    >>> found = torch._dynamo.explain(lambda x: (x * 2).sum())(torch.ones(3))
    >>> found.graph_count, found.graph_break_count, found.ops_per_graph
    (1, 0, [['full', 'mul', 'sum']])
    """

    def tell(*args: Any, **kwargs: Any) -> ExplainOutput:
        made = compiled.compile(f)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the result contains them
            made(*args, **kwargs)
            made(*args, **kwargs)
        found = list(with_parts(made))
        graphs = [g for c in found for g in c.graphs]
        reasons = [why for c in found if (why := reason(c))]
        ops = [[node.op.name for node in g.nodes] for g in graphs]
        guards = [e.recording.guards.explain() for c in found for e in c.entries]
        return ExplainOutput(
            graphs, len(graphs), len(reasons), list(map(GraphCompileReason, reasons)), sum(map(len, ops)), ops, guards,
            compile_times="", text=str(made.explain(*args, **kwargs)),
        )  # fmt: skip

    return tell(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else tell  # type: ignore[return-value]
