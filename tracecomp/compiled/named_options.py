"""PyTorch's names of backends and modes, for ``compile`` and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tracecomp.base.errors import at_user_line

NAMED_BACKENDS = {
    "inductor": "native", "aot_eager": "native", "native": "native", "eager": "interpret", "interpret": "interpret",
}  # fmt: skip
MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


REGISTERED: dict[str, Callable[..., object]] = {}
"""Backends that the program has registered: they can be looked up, not used."""


def backend_of(backend: object, mode: str | None, options: Mapping[str, object] | None) -> str:
    """The own name of ``backend``; RuntimeError for a mode that does not exist or for both.

    NotImplementedError for one that takes PyTorch's graphs, ValueError else.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            at_user_line("Either mode or options can be specified, but both can't be specified at the same time.")
        )
    if mode is not None and mode not in MODES:
        raise RuntimeError(at_user_line(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}"))
    if not isinstance(backend, str) or backend in REGISTERED:
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
        raise NotImplementedError(
            at_user_line(
                f"backend {name} needs PyTorch graphs, which do not exist here; use {', '.join(NAMED_BACKENDS)}"
            )
        )
    if backend not in NAMED_BACKENDS:
        names = ", ".join(NAMED_BACKENDS)
        raise ValueError(at_user_line(f"compile(): backend must be one of {names}, got {backend!r}"))
    return NAMED_BACKENDS[backend]
