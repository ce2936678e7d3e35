"""Module: the base class of neural network parts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tracecomp.base.code_origin import is_pytorchs
from tracecomp.base.errors import type_name
from tracecomp.compiled import hot_modules
from tracecomp.compiled.lazy_compile import compile
from tracecomp.compiled.named_options import backend_of
from tracecomp.eager.device import Device, check_device
from tracecomp.eager.meta import NO_DATA
from tracecomp.eager.modes import modes, module_changes, no_grad, scope
from tracecomp.eager.process_memory import share
from tracecomp.eager.tensor import Tensor, clear_grad
from tracecomp.functional import names as T
from tracecomp.ir.graph import ModuleName
from tracecomp.nn.hooks import (
    ModuleHooks,
    global_backward,
    global_backward_pre,
    global_forward,
    global_forward_pre,
    global_registration,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from tracecomp.nn.parameter import Buffer, Parameter, is_lazy
from tracecomp.nn.sharding import remade
from tracecomp.nn.state import EXTRA_STATE, IncompatibleKeys, ModuleState
from tracecomp.nn.tree import ModuleTree

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]  # fmt: skip

Self = TypeVar("Self", bound="Module")

_KINDS: tuple[tuple[str, type[Any], str], ...] = (
    ("_parameters", Parameter, "parameter"),
    ("_modules", object, "child module"),
    ("_buffers", Tensor, "buffer"),
)


class _Running(threading.local):
    """Names of the modules inside the outermost module that runs under a recorder."""

    names: Mapping[int, str] | None = None
    path: str = ""


_running = _Running()


def typename(value: object) -> str:
    """The class of ``value`` as messages name it: ``torch.FloatTensor``, ``builtins.int`` becomes ``int``."""
    if isinstance(value, Tensor):
        return str(value.type())
    kind = type(value)
    if is_pytorchs(kind):
        return type_name(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Recorded:
    """A recorded call of a module, in a scope named by its path in its parent."""

    def __init__(self, module: Module) -> None:
        module_changes.ran(module)
        self._before = _running.names, _running.path
        names, before = self._before
        if names is None or id(module) not in names:
            _running.names = {id(inner): name for name, inner in module.named_modules()}
            _running.path, name = "", type(module).__name__
        else:
            _running.path = path = names[id(module)]
            name = path.removeprefix(before + ".") if before else path
        self._scope = scope(ModuleName(name))

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        _running.names, _running.path = self._before
        self._scope.__exit__(*error)


class Module(ModuleTree, ModuleHooks, ModuleState):
    """Holds parameters, buffers and other modules under attribute names; subclasses define ``forward``."""

    training: bool
    dump_patches: bool = False
    call_super_init: bool = False
    _compiled_call_impl: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            given = args[0] if args else next(iter(kwargs))
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected argument {given!r}")
        set_plain = super().__setattr__
        set_plain("training", True)
        for name in ("_parameters", "_buffers", "_modules"):
            set_plain(name, {})
        set_plain("_non_persistent_buffers_set", set())
        for name in _HOOK_TABLES:
            set_plain(name, OrderedDict())
        set_plain("_is_full_backward_hook", None)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of a call; every subclass overrides it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        if hot_modules.switch.on and hot_modules.counts(self):
            return hot_modules.call(self, "_compiled_call_impl", self._call_impl, args, kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if modes.recorder is None:
            return self._call_with_hooks(args, kwargs) if self._has_hooks else self.forward(*args, **kwargs)
        with _Recorded(self):  # a block, not a function: modules may nest as deeply as in eager mode
            return self._call_with_hooks(args, kwargs) if self._has_hooks else self.forward(*args, **kwargs)

    # -- attributes ------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table)
            if entries is not None and name in entries:
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._check_initialized("parameters")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
            return
        if isinstance(value, Module):
            self._check_initialized("module")
            self._forget(name, "_modules")
            own["_modules"][name] = registered("module", self, name, value)
            module_changes.changed(id(self))
            return
        for table, kind, word in _KINDS:
            if name in own.get(table, ()):
                expected = Module if table == "_modules" else kind
                if value is not None and not isinstance(value, expected):
                    label = "nn.Buffer, torch.Tensor" if table == "_buffers" else f"nn.{expected.__name__}"
                    raise TypeError(
                        f"cannot assign '{typename(value)}' as {word} '{name}' (torch.{label} or None expected)"
                    )
                if own[table][name] is not value:  # as after ``self.count += 1``, which writes in place
                    own[table][name] = value
                    module_changes.changed(id(self))
                return
        if isinstance(value, Buffer):
            self._check_initialized("buffer")
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
            return
        # ``train()`` in every step usually sets the same value.
        tells = own.get(name, own) is not value and module_changes.compared(type(self), name)
        super().__setattr__(name, value)
        if tells:
            module_changes.changed(id(self))

    def _check_initialized(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    def _forget(self, name: str, kept: str) -> None:
        """Drop ``name`` everywhere except in the table ``kept``, whose order must not change."""
        own = self.__dict__
        own.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != kept:
                own[table].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(table, ()):
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                break
        else:
            super().__delattr__(name)
        module_changes.changed(id(self))

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_compiled_call_impl"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def _check_name(self, kind: str, name: object, table: Mapping[str, object]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or an absent one). TypeError, KeyError or ValueError as in PyTorch."""
        self._check_initialized("parameter")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly."
                )
            param = registered("parameter", self, name, param)
        self._parameters[name] = param
        module_changes.changed(id(self))

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not a parameter; a persistent one is part of the state_dict."""
        self._check_initialized("buffer")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = registered("buffer", self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)
        module_changes.changed(id(self))

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under ``name``."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = registered("module", self, name, module)
        module_changes.changed(id(self))

    register_module = add_module

    # -- conversions ----------------------------------------------------------------------------------------------

    def apply(self: Self, fn: Callable[[Module], None]) -> Self:
        """``fn`` on every module below, children first, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            with no_grad():
                found, grad = fn(param), None if param.grad is None else fn(param.grad)
            # ``to`` often returns its operand. Compiled calls then keep the values that they prepared.
            if found is not param and found.device == param.device:
                param.data = found
            elif found is not param:  # a parameter without memory gets none, and the reverse
                self._parameters[name] = param = remade(param, found)
                module_changes.changed(id(self))
            if grad is not param.grad:
                param.grad = grad
        for name, buffer in self._buffers.items():
            if buffer is not None and (found := fn(buffer)) is not buffer:
                self._buffers[name] = found
                module_changes.changed(id(self))
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating parameters and buffers: ``to(dtype)``, ``to(device)``, ``to(tensor)``.

        ``memory_format`` is for those of four and five dimensions.
        """
        if unknown := kwargs.keys() - {"device", "dtype", "memory_format", "non_blocking", "other", "tensor"}:
            raise TypeError(f"to() got an unexpected keyword argument '{min(unknown)}'")
        options = dict(kwargs)
        for value in args:
            key = "other" if isinstance(value, Tensor) else "dtype" if hasattr(value, "itemsize") else "device"
            options.setdefault(key, value)
        other = options.pop("other", options.pop("tensor", None))
        dtype = options.get("dtype") or (other.dtype if other is not None else None)
        if dtype is not None and not dtype.differentiable:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        device, order = options.get("device"), options.get("memory_format")

        # A parameter without a shape records type and device for later.
        def convert(t: Tensor) -> Tensor:
            if is_lazy(t):
                return t
            if t.is_meta and device is not None and check_device(device).type != "meta":
                raise NotImplementedError(
                    f"{NO_DATA} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                    "module from meta to a different device."
                )
            moved = t if device is None else t.to(device)
            moved = moved.to(dtype) if dtype is not None and t.dtype.differentiable else moved
            return moved if order is None or t.ndim not in (4, 5) else moved.to(memory_format=order)

        return self._apply(convert)

    def type(self: Self, dst_type: Any) -> Self:
        return self._apply(lambda t: t.type(dst_type))

    def _float_to(self: Self, name: str) -> Self:
        return self._apply(lambda t: getattr(t, name)() if t.is_floating_point() else t)

    def float(self: Self) -> Self:
        return self._float_to("float")

    def double(self: Self) -> Self:
        return self._float_to("double")

    def half(self: Self) -> Self:
        return self._float_to("half")

    def bfloat16(self: Self) -> Self:
        return self._float_to("bfloat16")

    def cpu(self: Self) -> Self:
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Device = None) -> Self:
        return self._apply(lambda t: t.cuda(device))

    def share_memory(self: Self) -> Self:
        """Move parameters, their gradients and buffers to memory that other processes can refer to."""
        tensors = [t for kept in (*self.parameters(), *self.buffers()) for t in (kept, kept.grad) if t is not None]
        for t in filter(is_lazy, tensors):
            t.share_memory_()  # it says why that is not possible
        share(tensors)
        return self

    def to_empty(self: Self, *, device: Device, recurse: bool = True) -> Self:
        return self._apply(lambda t: T.empty_like(t, device=device), recurse)

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode on this module and all below; ValueError unless ``mode`` is a bool."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for param in self.parameters():
            clear_grad(param, set_to_none)

    def compile(
        self, *, backend: str = "inductor", mode: str | None = None, options: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """Compile the call of this module in place; the options are those of ``tracecomp.compile``."""
        hot_modules.forget(self)
        self._compiled_call_impl = compile(self._call_impl, backend=backend_of(backend, mode, options), **more)

    # -- text ------------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Override to describe the module's arguments in its printed form."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        lines = extra + children
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


# Under their names in torch.nn.modules.module.
_IncompatibleKeys = IncompatibleKeys
_global_backward_pre_hooks, _global_backward_hooks = global_backward_pre.hooks, global_backward.hooks
_global_forward_pre_hooks, _global_forward_hooks = global_forward_pre.hooks, global_forward.hooks
_global_forward_pre_hooks_with_kwargs = global_forward_pre.marked["with_kwargs"]
_global_forward_hooks_with_kwargs = global_forward.marked["with_kwargs"]
_global_forward_hooks_always_called = global_forward.marked["always_called"]
_global_parameter_registration_hooks, _global_buffer_registration_hooks, _global_module_registration_hooks = (
    global_registration[kind].hooks for kind in ("parameter", "buffer", "module")
)
_EXTRA_STATE_KEY_SUFFIX = EXTRA_STATE
_HOOK_TABLES = (
    "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
