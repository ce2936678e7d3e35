"""Activation checkpointing: saved tensors of a function are dropped, and recomputed when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tracecomp.autograd.graph import saved_tensors_hooks
from tracecomp.eager.modes import enable_grad, modes
from tracecomp.eager.rng import fork_rng, get_rng_state, set_rng_state
from tracecomp.eager.tensor import Tensor

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]


class CheckpointError(RuntimeError):
    """Raised when a checkpointed function behaves differently on recomputation."""


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return two contexts without effect."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., object],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Run ``function(*args, **kwargs)``; backward recomputes its intermediate results instead of keeping them.

    ``context_fn()`` returns the contexts of the first and of the repeated run. ValueError together with
    ``use_reentrant=True``. In forward mode (``jvp``, ``jacfwd``, ``hessian``, dual numbers), intermediate results are
    kept.
    """
    if use_reentrant and context_fn is not noop_context_fn:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    now, again = context_fn()
    if modes.levels:  # backward can follow the end of a level, and tangents could not be computed again then
        with now:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, get_rng_state() if preserve_rng_state else None, again)
    with saved_tensors_hooks(frame.pack, frame.unpack), now:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Tensor, use_reentrant: bool | None = None, **kwargs: Any
) -> Tensor:
    """Run a sequence of functions in ``segments`` checkpointed parts."""
    parts = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(parts) // segments, 1)
    for start in range(0, len(parts), size):
        last = start // size == segments - 1
        chosen = parts[start:] if last else parts[start : start + size]
        input = checkpoint(_Chain(chosen), input, **kwargs)
        if last:
            break
    return input


class _Chain:
    """Functions applied one after another."""

    def __init__(self, parts: Sequence[Callable[..., object]]) -> None:
        self.parts = parts

    def __call__(self, x: object) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class _Frame:
    """One checkpointed call: numbers replace saved tensors until the first is needed."""

    def __init__(
        self, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], rng: Tensor | None,
        again: AbstractContextManager[Any],
    ) -> None:  # fmt: skip
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.rng = rng
        self.again = again
        self.autocast = modes.autocast
        self.types: list[tuple[Any, ...]] = []
        self.made: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> int:
        self.types.append(_type(tensor))
        return len(self.types) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.made:
            self._recompute()
        return self.made.pop(number)

    def _recompute(self) -> None:
        count = 0

        def collect(tensor: Tensor) -> Tensor:
            nonlocal count
            if count < len(self.types):
                if _type(tensor) != self.types[count]:
                    dtype, shape = self.types[count]
                    raise CheckpointError(
                        f"checkpoint: recomputed tensor {count} is {tensor.dtype} of shape {tuple(tensor.shape)}, it "
                        f"was {dtype} of shape {shape} in the forward pass"
                    )
                self.made[count] = tensor.detach()
            count += 1
            return tensor

        hooks = saved_tensors_hooks(collect, lambda t: t)
        with fork_rng(enabled=self.rng is not None), enable_grad(), _autocast(self.autocast), hooks, self.again:
            if self.rng is not None:
                set_rng_state(self.rng)
            self.function(*_detached(self.args), **self.kwargs)
        if count != len(self.types):
            raise CheckpointError(
                f"checkpoint: {count} tensors were saved in the recomputation, {len(self.types)} the first time"
            )


def _type(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape)


@contextmanager
def _autocast(dtype: object) -> Iterator[None]:
    """Autocast as in the function's first run: backward is usually called outside of it."""
    before, modes.autocast = modes.autocast, dtype
    try:
        yield
    finally:
        modes.autocast = before


def _detached(args: tuple[object, ...]) -> tuple[Any, ...]:
    return tuple(a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args)
