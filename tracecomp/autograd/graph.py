"""Inspection and control of the autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tracecomp.base.interrupts import before_of
from tracecomp.eager.aliasing import gradient_edge
from tracecomp.eager.modes import leave_modes, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Handle, Node

__all__ = ["Node", "disable_saved_tensors_hooks", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """A context in which tensors saved for backward pass through ``pack``, and through ``unpack`` on use."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self._hooks = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        before = before_of(self)["save_hooks"] = modes.save_hooks
        modes.save_hooks = (*before, self._hooks)

    __exit__ = leave_modes()


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors on the CPU, where they are anyway."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda x: x, lambda x: x)


class disable_saved_tensors_hooks:
    """A context without ``saved_tensors_hooks``."""

    def __init__(self, error_message: str = "") -> None:
        self._message = error_message

    def __enter__(self) -> None:
        before_of(self)["save_hooks"] = modes.save_hooks
        modes.save_hooks = ()

    __exit__ = leave_modes()


class _Handles:
    """Removes several hooks; usable as a context manager."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> _Handles:
    """Call ``fn`` once in each backward pass with gradients of several tensors; the handle removes the hook.

    With ``mode="all"``, ``fn`` gets the gradients of all ``tensors`` when the last is known, None for those that the
    pass does not reach. With ``mode="any"``, it gets the first gradient that is known. ValueError for other modes.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    seen: WeakKeyDictionary[Any, dict[int, Tensor]] = WeakKeyDictionary()

    def hook_of(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            current = modes.backward_pass
            grads = seen.setdefault(current, {})
            grads[place] = grad
            if mode == "any":
                if len(grads) == 1:
                    fn(grad)
            elif len(grads) == sum(edge is not None and current.executes(edge[0]) for edge in edges):
                fn([grads.get(k) for k in range(len(tensors))])

        return hook

    hooked = [t for t in tensors if mode == "all" or t.requires_grad]
    handles = [t.register_hook(hook_of(k)) for k, t in enumerate(hooked)]
    edges = [gradient_edge(t) for t in hooked]
    return _Handles(handles)
