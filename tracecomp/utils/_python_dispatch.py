"""``torch.utils._python_dispatch``: modes and classes of tensors that see every operator below autograd.

Operators are named as in ``torch.ops.aten``; which arrive is said in ``docs/dispatch.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.eager.tensor import Tensor

__all__ = [
    "TorchDispatchMode", "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing", "transform_subclass",
]  # fmt: skip


class TorchDispatchMode:
    """``with Mode():`` every operator inside is dispatched to ``__torch_dispatch__``, which may run it.

    This includes operators of the backward pass. Inside ``__torch_dispatch__`` the mode itself is off, and nothing is
    recorded for backward: autograd is in a layer above.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp.utils._python_dispatch import TorchDispatchMode
        >>> class Log(TorchDispatchMode):
        ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ...         print(func)
        ...         return func(*args, **(kwargs or {}))
        >>> with Log():
        ...     y = torch.ones(2) * 3
        aten.full.default
        aten.mul.Tensor
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        use.begin()
        watch_calls()
        modes.dispatch_modes = (*modes.dispatch_modes, self)
        return self

    def __exit__(self, *error: object) -> None:
        modes.dispatch_modes = modes.dispatch_modes[:-1]
        use.end()
        unwatch_calls()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """A mode made with these arguments."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        return False


BaseTorchDispatchMode = TorchDispatchMode


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    return modes.dispatch_modes[-1] if modes.dispatch_modes else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(modes.dispatch_modes)


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """A context in which no mode is active."""
    stack, modes.dispatch_modes = modes.dispatch_modes, ()
    try:
        yield list(stack)
    finally:
        modes.dispatch_modes = stack


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether ``t`` says how it is taken apart into tensors and put together."""
    return hasattr(t, "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """``t`` put together of ``callback(name, tensor)`` for each tensor that it consists of."""
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    return type(t).__tensor_unflatten__(parts, context, size, t.stride() if outer_stride is None else outer_stride)


def return_and_correct_aliasing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: object) -> Any:
    """The result of ``func``: the tensor that it writes, else ``out``.

    Views need nothing else: their memory is that of the inner tensors.
    """
    if (kwargs or {}).get("out") is not None:
        return (kwargs or {})["out"]
    written = func._schema.is_mutable and args and isinstance(args[0], Tensor)
    return args[0] if written else out
