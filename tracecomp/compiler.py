"""The names of ``torch.compiler``: ``compile`` for functions and modules, and queries and hints for the compiler.

A call is captured by running it. Marks that tell PyTorch's capture what to include (``allow_in_graph``,
``assume_constant_result``) therefore have no effect: the function runs and its computation is recorded.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from tracecomp import compiled
from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import at_user_line
from tracecomp.base.lazy_names import load_module
from tracecomp.compiled.call_dispatch import relink_all
from tracecomp.compiled.named_options import NAMED_BACKENDS, backend_of
from tracecomp.compiled.stance import STANCES, current
from tracecomp.eager.modes import modes

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends",
    "load_cache_artifacts", "nested_compile_region", "reset", "save_cache_artifacts", "set_stance",
    "substitute_in_graph",
]  # fmt: skip

F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class Counter(Protocol):
    """A backend under another name that counts recordings."""

    backend: str

    def watch(self, made: compiled.Compiled) -> None: ...


def compile(
    model: object = None, *, fullgraph: bool | None = None, dynamic: bool | None = None,
    backend: str | Counter = "inductor", mode: str | None = None, options: dict[str, Any] | None = None,
    disable: bool = False, **ours: Any,
) -> Any:  # fmt: skip
    """Record ``model`` in its first call and run it natively when a call fits; also a decorator.

    A module is compiled to an ``OptimizedModule``, which shares its parameters and state, or returned unchanged with
    ``disable``. A function is compiled to a function. ``backend`` is ``"inductor"`` or ``"native"`` (machine code),
    ``"eager"`` or ``"interpret"`` (the recorded graph in numpy), or a counter of recordings
    (``torch._dynamo.testing``). ``mode`` and ``options`` are PyTorch's and have no effect; RuntimeError for an unknown
    mode or for both. For the other arguments (``threads``, ``fast_math``, ``verify``), and ``fullgraph`` and
    ``dynamic``, see ``tracecomp.compiled.compile``.
    """
    if model is None:
        return partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable,
            **ours,
        )  # fmt: skip
    if not callable(model):
        raise AssertionError(at_user_line(f"A callable function is expected, but {type(model)} is provided."))
    way = backend_of(backend.backend if isinstance(backend, Counter) else backend, mode, options)
    if fullgraph is not None:
        ours["fullgraph"] = fullgraph
    module = sys.modules.get("tracecomp.nn.module")  # if it is not imported, there are no modules
    is_module = module is not None and isinstance(model, module.Module)
    if is_module and disable:
        return model
    made = compiled.compile(model, dynamic=dynamic, backend=way, disable=disable, **ours)
    if isinstance(backend, Counter) and isinstance(made, compiled.Compiled):
        backend.watch(made)
    if not is_module:
        return made
    # Layers are in another package, which programs without modules do not load.
    return load_module("tracecomp.nn.optimized_module").OptimizedModule(model, made)


def is_compiling() -> bool:
    """Whether the current call is being recorded."""
    return modes.recorder is not None


def is_dynamo_compiling() -> bool:
    """Whether the current call is being recorded."""
    return modes.recorder is not None


def is_exporting() -> bool:
    """Return False: ``torch.export`` captures by recording."""
    return False


def reset() -> None:
    """Drop the recordings of every compiled function."""
    for found in gc.get_objects():
        if type(found) is compiled.Compiled:
            found.reset()


class set_stance:
    """Set the behaviour of all compiled functions; also for a block (``with``) or, as a decorator, for a function.

    ``"default"`` records calls that no recording fits, ``"eager_on_recompile"`` runs them eagerly,
    ``"fail_on_recompile"`` raises RuntimeError; ``"force_eager"`` runs all calls eagerly. ``"eager_then_compile"`` and
    ``"aot_eager_then_compile"`` equal the default: a first call runs eagerly anyway. ``skip_guard_eval_unsafe`` has no
    effect: guards are compared. RuntimeError for another name, for a ``force_backend``, and in a compiled function.

    >>> import tracecomp as torch
    >>> f = torch.compile(lambda x: x + 1)
    >>> with torch.compiler.set_stance("fail_on_recompile"):
    ...     f(torch.ones(1))
    Traceback (most recent call last):
    ...
    RuntimeError: Detected recompile when torch.compile stance is 'fail_on_recompile': <lambda>
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: object = None
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(
                at_user_line(f"invalid torch.compile stance {stance!r}, not one of {', '.join(STANCES)}")
            )
        if force_backend is not None:
            other = "non-default stance cannot have force_backend set"
            raise RuntimeError(at_user_line(other if stance != "default" else "force_backend is not supported"))
        if modes.recorder is not None:
            raise RuntimeError(at_user_line("torch.compiler.set_stance cannot be called in a compiled function"))
        self._name, self._before = stance, current.name
        _set(stance)

    def __enter__(self) -> None:
        _set(self._name)

    def __exit__(self, *error: object) -> None:
        _set(self._before)

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        _set(self._before)

        @wraps(fn)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_stance(self._name):
                return fn(*args, **kwargs)

        return run


def _set(name: str) -> None:
    current.name = name
    relink_all()


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep ``fn`` out of graphs: a compiled function that calls it has a graph break there and runs it as Python; a
    decorator.

    With ``fullgraph=True`` such a call is a CaptureError, which includes ``reason``. Modules and classes are returned
    unchanged; disable their ``forward``.

    >>> import tracecomp as torch
    >>> calls = []
    >>> @torch.compiler.disable
    ... def noted(x):
    ...     calls.append(1)
    ...     return x + 1
    >>> f = torch.compile(lambda x: noted(x), fullgraph=True)
    >>> f(torch.ones(1))
    Traceback (most recent call last):
    ...
    tracecomp.base.errors.CaptureError: the program calls noted, which is excluded from graphs, ...
    """
    if fn is None:
        return partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, type) or hasattr(fn, "state_dict"):
        return fn
    name = getattr(fn, "__name__", type(fn).__name__)

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        if modes.recorder is not None:
            what = f"calls {name}, which is excluded from graphs{f' ({reason})' if reason else ''}"
            modes.recorder.refuse_here(what, Section.EXCLUDE, "Call it outside")
        return fn(*args, **kwargs)

    return run


def allow_in_graph(fn: F) -> F:
    """Return ``fn``."""
    return fn


def assume_constant_result(fn: F) -> F:
    """Return ``fn``."""
    return fn


def substitute_in_graph(original_fn: object, **options: Any) -> Callable[[F], F]:
    """Return the decorated function; ``original_fn`` itself runs and is recorded."""
    return _same


def _same(fn: F) -> F:
    return fn


def cudagraph_mark_step_begin() -> None:
    """Do nothing: results of compiled calls are not overwritten by the next call."""


def list_backends(exclude_tags: object = ()) -> list[str]:
    """Return the backends of ``compile``."""
    return sorted(NAMED_BACKENDS)


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Return ``fn``, also as a decorator: layers with the same computation share their machine code anyway."""
    return _same if fn is None else fn


def save_cache_artifacts() -> None:
    """Return None, as PyTorch does if there is nothing to save: machine code is stored in ``TRACECOMP_CACHE_DIR`` at
    once."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Raise RuntimeError: such bytes are never created here. Copy the folder ``TRACECOMP_CACHE_DIR`` instead."""
    raise RuntimeError(
        at_user_line("cache artifacts of PyTorch cannot be loaded. Copy the folder TRACECOMP_CACHE_DIR instead")
    )
