"""Hooks of ``Module`` and the order in which a call runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from tracecomp.autograd import Function, grad_enabled
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.modes import module_changes
from tracecomp.eager.tensor import Tensor
from tracecomp.utils.hooks import RemovableHandle, register

Hook = Callable[..., Any]

_BOTH_KINDS = "Cannot use both regular backward hooks and full backward hooks {}. Please use only one of them."
_KWARGS, _ALWAYS, _FULL = "with_kwargs", "always_called", "full"


class _Global:
    """The hooks of all modules of one kind, and their options."""

    def __init__(self, *options: str) -> None:
        self.hooks: OrderedDict[int, Hook] = OrderedDict()
        self.marked: dict[str, OrderedDict[int, bool]] = {name: OrderedDict() for name in options}

    def add(self, hook: Hook, **options: bool) -> RemovableHandle:
        return register(self.hooks, hook, options=[(self.marked[name], chosen) for name, chosen in options.items()])


global_forward_pre, global_forward = _Global(_KWARGS), _Global(_KWARGS, _ALWAYS)
global_backward_pre, global_backward = _Global(), _Global(_FULL)
global_registration = {kind: _Global() for kind in ("parameter", "buffer", "module")}
_CALLED = (global_forward_pre, global_forward, global_backward_pre, global_backward)
module_changes.global_hooks += [each.hooks for each in (*_CALLED, *global_registration.values())]


def register_module_forward_pre_hook(hook: Hook, *, with_kwargs: bool = False) -> RemovableHandle:
    """``hook(module, args[, kwargs])`` before every module's forward."""
    return global_forward_pre.add(hook, with_kwargs=with_kwargs)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """``hook(module, args[, kwargs], output)`` after every module's forward; ``always_call`` if that raises, too."""
    return global_forward.add(hook, with_kwargs=with_kwargs, always_called=always_call)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, grad_output)`` before every module's backward."""
    return global_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, grad_input, grad_output)`` after every module's backward. RuntimeError together with the older
    kind."""
    _check_kind(True)
    return global_backward.add(hook, full=True)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """The older form: ``hook`` receives the gradients of every module's last operation. RuntimeError together with full
    ones."""
    _check_kind(False)
    return global_backward.add(hook, full=False)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, name, parameter)`` when a parameter is registered; its result replaces the parameter."""
    return global_registration["parameter"].add(hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, name, buffer)`` when a buffer is registered; its result replaces the buffer."""
    return global_registration["buffer"].add(hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """``hook(module, name, child)`` when a module is registered; its result replaces the module."""
    return global_registration["module"].add(hook)


def registered(kind: str, module: object, name: str, value: object) -> Any:
    """Apply the hooks to a parameter, buffer or module that is registered under ``name``."""
    for hook in global_registration[kind].hooks.values():
        replaced = hook(module, name, value)
        value = value if replaced is None else replaced
    return value


def _check_kind(full: bool) -> None:
    """Full backward hooks and the older ones receive different gradients: only one kind at a time is permitted."""
    if any((key in global_backward.marked[_FULL]) is not full for key in global_backward.hooks):
        raise RuntimeError(_BOTH_KINDS.format("as a global Module hook"))


class BackwardHookFunction(Function):
    """The identity whose backward passes gradients at a module's border to ``seen``."""

    @staticmethod
    def forward(ctx: Any, seen: Callable[[tuple[Any, ...]], Any], *tensors: Tensor) -> Any:
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        replaced = ctx.seen(grads)
        return (None, *(grads if replaced is None else replaced))

    @staticmethod
    def jvp(ctx: object, seen: None, *tangents: Tensor | None) -> Any:
        return tangents


def _as_tuple(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _rebuilt(like: Any, items: list[Any]) -> Any:
    """``items`` as a tuple of the kind of ``like``, including named tuples."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


class _BackwardHooks:
    """Full backward hooks of one call: they receive gradients at the module's outputs, then at its inputs."""

    def __init__(self, module: ModuleHooks, after: list[Hook]) -> None:
        self.module = module
        self.before = (*global_backward_pre.hooks.values(), *module._backward_pre_hooks.values())
        self.after = after
        self.grad_output: tuple[Any, ...] | None = None
        self.count = 0
        self.tracks_inputs = False

    def _wrap(self, values: Any, seen: Callable[[tuple[object, ...]], object]) -> tuple[Any, list[int]]:
        items = list(values)
        where = [i for i, v in enumerate(items) if isinstance(v, Tensor) and v.requires_grad]
        if not where or not grad_enabled():
            return values, []
        wrapped = _as_tuple(BackwardHookFunction.apply(seen, *(items[i] for i in where)))
        for i, value in zip(where, wrapped, strict=True):
            items[i] = value
        return _rebuilt(values, items), where

    def inputs(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        """Pass ``args`` through a boundary that runs the backward hooks."""
        size = self.count = len(args)

        def seen(grads: tuple[object, ...]) -> tuple[Any, ...]:
            if self.grad_output is None:  # gradients arrived without passing the outputs
                return grads
            result = self._run_after(_spread(grads, where, size))
            self.grad_output = None
            return tuple(result[i] for i in where)

        wrapped, where = self._wrap(args, seen)
        self.tracks_inputs = bool(where)
        return wrapped

    def _run_after(self, grad_input: tuple[object, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            replaced = hook(self.module, grad_input, self.grad_output)
            if replaced is None:
                continue
            found = _as_tuple(replaced)
            if len(found) != len(grad_input):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(found)}, but expected "
                    f"{len(grad_input)}"
                )
            if not self.tracks_inputs and any(g is not None for g in found):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
            grad_input = found
        return grad_input

    def outputs(self, output: object) -> Any:
        """Pass ``output`` through a boundary that runs the pre hooks and keeps the output gradient."""
        if not isinstance(output, Tensor | tuple):
            warn_as_pytorch(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(output)}",
            )
            return output

        def seen(grads: tuple[object, ...]) -> tuple[Any, ...]:
            found = _spread(grads, where, size)
            for hook in self.before:
                replaced = hook(self.module, found)
                if replaced is None:
                    continue
                if len(_as_tuple(replaced)) != size:
                    raise RuntimeError(
                        "Backward pre hook returned an invalid number of grad_output, got "
                        f"{len(_as_tuple(replaced))}, but expected {size}"
                    )
                found = _as_tuple(replaced)
            self.grad_output = found
            if not self.tracks_inputs:
                self._run_after((None,) * self.count)
                self.grad_output = None
            return tuple(found[i] for i in where)

        values = (output,) if isinstance(output, Tensor) else output
        size = len(values)
        wrapped, where = self._wrap(values, seen)
        return wrapped[0] if isinstance(output, Tensor) else wrapped


def _spread(grads: tuple[object, ...], where: list[int], size: int) -> tuple[Any, ...]:
    """``grads`` at the places ``where`` of a tuple of ``size``, None elsewhere."""
    full: list[Any] = [None] * size
    for i, grad in zip(where, grads, strict=True):
        full[i] = grad
    return tuple(full)


class _OlderBackwardHook:
    """A hook on the operation that computed a module's result, as ``register_backward_hook`` defines it."""

    def __init__(self, module: ModuleHooks, hook: Hook) -> None:
        self.module, self.hook = module, hook

    def __call__(self, *grads: Any) -> Any:
        return self.hook(self.module, *grads)


def _attach_older(module: ModuleHooks, hooks: list[Hook], args: object, result: object) -> None:
    """Call ``hooks`` with the gradients of the operation that computed ``result``."""
    found: Any = result
    while not isinstance(found, Tensor):
        within = [v for v in found.values() if isinstance(v, Tensor)] if isinstance(found, dict) else found
        found = within[0]
    node = found.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_OlderBackwardHook(module, hook))
    trouble = _what_is_missed(args, result, node)
    if trouble:
        warn_as_pytorch(
            f"Using {trouble}. Please use register_full_backward_hook to get the documented behavior.",
            FutureWarning,
        )


def _what_is_missed(args: object, result: object, node: Any) -> str:
    """PyTorch's message about gradients that a hook on ``node`` does not receive."""
    end = "is deprecated and will be removed in future versions. This hook will be missing some"
    results, inputs = _as_tuple(result), _as_tuple(args)
    if not all(isinstance(r, Tensor) for r in results):
        what = "does not return a single Tensor or a tuple of Tensors"
        return f"non-full backward hooks on a Module that {what} {end} of the grad_output"
    if not all(isinstance(a, Tensor) for a in inputs):
        what = "does not take as input a single Tensor or a tuple of Tensors"
        return f"non-full backward hooks on a Module that {what} {end} of the grad_input"
    made = {r.grad_fn for r in results if r.grad_fn is not None}
    if made == {node}:
        wanted = {a.grad_fn for a in inputs if a.grad_fn is not None}
        if wanted != {n for n, _ in node.next_functions}:
            return f"a non-full backward hook when the forward contains multiple autograd Nodes {end} grad_input"
        return ""
    if len(made) > 1:
        return f"a non-full backward hook when outputs are generated by different autograd Nodes {end} grad_output"
    return f"a non-full backward hook when outputs are nested in python data structure {end} grad_output"


class ModuleHooks:
    """Registration of hooks, and the call that runs them."""

    forward: Callable[..., Any]
    _forward_pre_hooks: OrderedDict[int, Hook]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Hook]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Hook]
    _backward_hooks: OrderedDict[int, Hook]
    _is_full_backward_hook: bool | None

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """``hook(module, args[, kwargs])`` before forward; its result replaces the arguments."""
        return register(self._forward_pre_hooks, hook, prepend, [(self._forward_pre_hooks_with_kwargs, with_kwargs)])

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """``hook(module, args[, kwargs], output)`` after forward; its result replaces the output."""
        options = [(self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call)]
        return register(self._forward_hooks, hook, prepend, options)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_output)`` before the gradient of the outputs enters the module."""
        return register(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_input, grad_output)`` once the gradient of the inputs is known.

        RuntimeError if the module has hooks of ``register_backward_hook``.
        """
        self._set_kind_of_backward_hooks(True)
        return register(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """The older form: ``hook`` receives the gradients of the module's last operation, with respect to its operands.
        ``hook`` sees the gradients of the module's last operation, whatever its operands are.

        RuntimeError if the module has hooks of ``register_full_backward_hook``.
        """
        self._set_kind_of_backward_hooks(False)
        return register(self._backward_hooks, hook)

    def _set_kind_of_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook is not None and self._is_full_backward_hook is not full:
            raise RuntimeError(_BOTH_KINDS.format("on a single Module"))
        self.__dict__["_is_full_backward_hook"] = full  # in the dict, even if attributes belong to another module

    def _run_pre_hooks(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        marked = self._forward_pre_hooks_with_kwargs, global_forward_pre.marked[_KWARGS]
        for key, hook in [*global_forward_pre.hooks.items(), *self._forward_pre_hooks.items()]:
            if not any(key in table for table in marked):
                replaced = hook(self, args)
                args = args if replaced is None else _as_tuple(replaced)
                continue
            replaced = hook(self, args, kwargs)
            if replaced is None:
                continue
            if not (isinstance(replaced, tuple) and len(replaced) == 2):
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {replaced}."
                )
            args, kwargs = replaced
        return args, kwargs

    def _hooks_after(self) -> list[tuple[int, Hook, bool, bool]]:
        """Key, hook, whether it takes keyword arguments, whether it is always called."""
        marked = global_forward.marked
        everywhere = [(k, h, k in marked[_KWARGS], k in marked[_ALWAYS]) for k, h in global_forward.hooks.items()]
        kwargs, always = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        return everywhere + [(k, h, k in kwargs, k in always) for k, h in self._forward_hooks.items()]

    def _backward_hooks_of(self, full: bool) -> Iterator[Hook]:
        """The backward hooks of all modules and of this one that are of one kind."""
        marked = global_backward.marked[_FULL]
        yield from (hook for key, hook in global_backward.hooks.items() if (key in marked) is full)
        if self._is_full_backward_hook is full:
            yield from self._backward_hooks.values()

    def _call_with_hooks(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Pre hooks, forward, forward hooks; the module's border is marked if there are backward hooks."""
        called: set[int] = set()
        output = None
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            after = list(self._backward_hooks_of(True))
            border = None
            if after or self._backward_pre_hooks or global_backward_pre.hooks:
                border = _BackwardHooks(self, after)
                args = border.inputs(args)
            output = self.forward(*args, **kwargs)
            for key, hook, with_kwargs, _ in self._hooks_after():
                called.add(key)
                replaced = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
                output = output if replaced is None else replaced
            if border is not None:
                output = border.outputs(output)
            older = list(self._backward_hooks_of(False))
            if older:
                _attach_older(self, older, args, output)
            return output
        except Exception:
            self._call_what_is_left(called, args, kwargs, output)
            raise

    def _call_what_is_left(self, called: set[int], args: object, kwargs: dict[str, object], output: object) -> None:
        """Call the remaining ``always_call`` hooks after forward or another hook has raised."""
        for key, hook, with_kwargs, always in self._hooks_after():
            if key in called or not always:
                continue
            try:
                replaced = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
                output = output if replaced is None else replaced
            except Exception as error:  # the caller sees the first one
                which = "global module" if key in global_forward.hooks else "module"
                warn_as_pytorch(
                    f"{which} forward hook with ``always_call=True`` raised an exception that was silenced as another "
                    f"error was raised in forward: {error}",
                )

    @property
    def _has_hooks(self) -> bool:
        return bool(
            self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks
            or global_forward_pre.hooks or global_forward.hooks or global_backward.hooks or global_backward_pre.hooks
        )  # fmt: skip
