"""Hooks of ``Module`` and the order in which a call runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from tracecomp.autograd import Function, grad_enabled
from tracecomp.eager.modes import module_changes
from tracecomp.eager.tensor import Tensor
from tracecomp.utils.hooks import RemovableHandle, register

Hook = Callable[..., Any]

_global_forward_pre: OrderedDict[int, Hook] = OrderedDict()
_global_forward: OrderedDict[int, Hook] = OrderedDict()
_global_backward_pre: OrderedDict[int, Hook] = OrderedDict()
_global_backward: OrderedDict[int, Hook] = OrderedDict()
module_changes.global_hooks += [_global_forward_pre, _global_forward, _global_backward_pre, _global_backward]


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, args)`` before every module's forward."""
    return register(_global_forward_pre, hook)


def register_module_forward_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, args, output)`` after every module's forward."""
    return register(_global_forward, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, grad_output)`` before every module's backward."""
    return register(_global_backward_pre, hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, grad_input, grad_output)`` after every module's backward."""
    return register(_global_backward, hook)


class _WithOptions:
    """A hook and the options under which it was registered."""

    __slots__ = ("always", "hook", "kwargs")

    def __init__(self, hook: Hook, kwargs: bool = False, always: bool = False) -> None:
        self.hook, self.kwargs, self.always = hook, kwargs, always

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


class _Boundary(Function):
    """The identity whose backward shows the gradients that pass a module's border to ``seen``."""

    @staticmethod
    def forward(ctx: Any, seen: Callable[[tuple[Any, ...]], Any], *tensors: Tensor) -> Any:
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        replaced = ctx.seen(grads)
        return (None, *(grads if replaced is None else replaced))


def _as_tuple(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _BackwardHooks:
    """Full backward hooks of one call: gradients are seen at the module's outputs, then at its inputs."""

    def __init__(self, module: ModuleHooks) -> None:
        self.module = module
        self.before = (*_global_backward_pre.values(), *module._backward_pre_hooks.values())
        self.after = (*_global_backward.values(), *module._backward_hooks.values())
        self.grad_output: tuple[Any, ...] = ()
        self.count = 0
        self.tracks_inputs = False

    def _wrap(self, values: Any, seen: Callable[[tuple[Any, ...]], Any]) -> tuple[Any, list[int]]:
        items = list(values)
        where = [i for i, v in enumerate(items) if isinstance(v, Tensor) and v.requires_grad]
        if not where or not grad_enabled():
            return values, []
        wrapped = _as_tuple(_Boundary.apply(seen, *(items[i] for i in where)))
        for i, value in zip(where, wrapped, strict=True):
            items[i] = value
        return type(values)(items), where

    def inputs(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        """``args`` behind a boundary that runs the backward hooks."""
        size = self.count = len(args)

        def seen(grads: tuple[object, ...]) -> tuple[Any, ...]:
            full: list[Any] = [None] * size
            for i, grad in zip(where, grads, strict=True):
                full[i] = grad
            result = self._run_after(tuple(full))
            return tuple(result[i] for i in where)

        wrapped, where = self._wrap(args, seen)
        self.tracks_inputs = bool(where)
        return wrapped

    def _run_after(self, grad_input: tuple[object, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            replaced = hook(self.module, grad_input, self.grad_output)
            if replaced is not None:
                grad_input = _as_tuple(replaced)
        return grad_input

    def outputs(self, output: object) -> Any:
        """``output`` behind a boundary that runs the pre hooks and keeps the output gradient."""
        if not isinstance(output, Tensor | tuple | list):
            return output

        def seen(grads: tuple[object, ...]) -> tuple[Any, ...]:
            full: list[Any] = [None] * size
            for i, grad in zip(where, grads, strict=True):
                full[i] = grad
            self.grad_output = tuple(full)
            for hook in self.before:
                replaced = hook(self.module, self.grad_output)
                if replaced is not None:
                    self.grad_output = _as_tuple(replaced)
            if not self.tracks_inputs:
                self._run_after((None,) * self.count)
            return tuple(self.grad_output[i] for i in where)

        values = (output,) if isinstance(output, Tensor) else output
        size = len(values)
        wrapped, where = self._wrap(values, seen)
        return wrapped[0] if isinstance(output, Tensor) else wrapped


class ModuleHooks:
    """Registration of hooks, and the call that runs them."""

    forward: Callable[..., Any]
    _forward_pre_hooks: OrderedDict[int, _WithOptions]
    _forward_hooks: OrderedDict[int, _WithOptions]
    _backward_pre_hooks: OrderedDict[int, Hook]
    _backward_hooks: OrderedDict[int, Hook]

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """``hook(module, args[, kwargs])`` before forward; what it returns replaces the arguments."""
        return register(self._forward_pre_hooks, _WithOptions(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """``hook(module, args[, kwargs], output)`` after forward; what it returns replaces the output."""
        return register(self._forward_hooks, _WithOptions(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_output)`` before the gradient of the outputs enters the module."""
        return register(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_input, grad_output)`` once the gradient of the inputs is known."""
        return register(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """The older name of ``register_full_backward_hook``."""
        return register(self._backward_hooks, hook)

    def _run_pre_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for plain in _global_forward_pre.values():
            replaced = plain(self, args)
            args = args if replaced is None else _as_tuple(replaced)
        for entry in tuple(self._forward_pre_hooks.values()):
            if not entry.kwargs:
                replaced = entry.hook(self, args)
                args = args if replaced is None else _as_tuple(replaced)
                continue
            replaced = entry.hook(self, args, kwargs)
            if replaced is None:
                continue
            if not (isinstance(replaced, tuple) and len(replaced) == 2):
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {replaced}."
                )
            args, kwargs = replaced
        return args, kwargs

    def _run_forward_hook(self, entry: _WithOptions, args: object, kwargs: Mapping[str, object], output: object) -> Any:
        given = (args, kwargs, output) if entry.kwargs else (args, output)
        replaced = entry.hook(self, *given)
        return output if replaced is None else replaced

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, object]) -> Any:
        """Pre hooks, forward, forward hooks; the module's border is marked when backward hooks wait for it."""
        pending = dict(self._forward_hooks)
        output = None
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            backward = self._backward_hooks or self._backward_pre_hooks or _global_backward or _global_backward_pre
            border = _BackwardHooks(self) if backward else None
            if border:
                args = border.inputs(args)
            output = self.forward(*args, **kwargs)
            for plain in _global_forward.values():
                replaced = plain(self, args, output)
                output = output if replaced is None else replaced
            for key, entry in tuple(self._forward_hooks.items()):
                pending.pop(key, None)
                output = self._run_forward_hook(entry, args, kwargs, output)
            return border.outputs(output) if border else output
        except Exception:  # of the program: hooks that always run do, and then it is raised
            for entry in pending.values():
                if entry.always:
                    output = self._run_forward_hook(entry, args, kwargs, output)
            raise

    @property
    def _has_hooks(self) -> bool:
        return bool(
            self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks
            or _global_forward_pre or _global_forward or _global_backward or _global_backward_pre
        )  # fmt: skip
