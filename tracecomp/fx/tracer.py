"""Tracer: runs a function or a module's ``forward`` on proxies."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from tracecomp.base.code_origin import torch_name
from tracecomp.base.errors import at_user_line
from tracecomp.eager.tensor import Tensor
from tracecomp.fx.graph import Graph
from tracecomp.fx.node import Argument, has_side_effect
from tracecomp.fx.patcher import _autowrap_check, _patch_wrapped_functions, _Patcher, _wrapped_fns_to_patch
from tracecomp.fx.proxy import ParameterProxy, Proxy, TracerBase
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

Fn = Callable[..., Any]


class PHBase:
    """In ``concrete_args``: an argument that stays one."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def wrap(fn_or_name: str | Fn) -> str | Fn:
    """Have tracing note calls of a function of this module and not enter it.

    At module scope, as ``wrap("len")`` or a decorator. RuntimeError or NotImplementedError elsewhere.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            at_user_line("Unsupported type for global function! Must be either a callable or string name")
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError(at_user_line("wrap must be called at the top level of a module"))
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


class Tracer(TracerBase):
    """Traces modules and functions. Subclasses say which modules are not entered and how values are named.

    Modules of torch.nn are leaves: their calls are single nodes. Functions of ``autowrap_modules`` and
    ``autowrap_functions``, too, are not entered.
    """

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,), autowrap_functions: tuple[Fn, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        self._autowrap_search = list(autowrap_modules)
        self._autowrap_functions = [  # held, since they are known by identity
            value for module in autowrap_modules for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        ] + list(autowrap_functions)  # fmt: skip
        self._autowrap_function_ids = {id(f) for f in self._autowrap_functions}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.tensor_attrs: dict[Tensor, str] = {}
        self.root_module_name = ""
        self.traced_func_name = "forward"

    # ---- what subclasses change

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of ``m`` is one node: for modules of torch.nn other than containers."""
        home = torch_name(m.__module__)
        return home.startswith(("torch.nn", "torch.ao.nn")) and type(m).__name__ != "Sequential"

    def path_of_module(self, mod: Module) -> str:
        """The name of ``mod`` in the root; NameError when it is not a part of it."""
        if self.submodule_paths:
            found = self.submodule_paths.get(mod)
        else:
            found = next((n for n, p in self.root.named_modules() if p is mod), None)
        if found is None:
            raise NameError("module is not installed as a submodule")
        return found

    def call_module(self, m: Module, forward: Fn, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Call a module: a node for a leaf, else the nodes of its ``forward``."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, object]) -> Any:
        """Read an attribute of a module: a proxy for a parameter, other values unchanged."""
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        for name, value in named:
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    options: dict[str, Any] = {}  # not all subclasses take it
                    if self.param_shapes_constant:
                        options["proxy_factory_fn"] = functools.partial(_parameter_proxy, self, name, attr_val)
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **options)
                return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a: Any) -> Argument:
        """Tensors become attributes of the root, which they are given when they are none."""
        if isinstance(a, Parameter):
            name = next((n for n, p in self.root.named_parameters() if p is a), None)
            if name is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Tensor):
            name = next((n for n, p in self.root.named_buffers() if p is a), None)
            return self.create_node("get_attr", name or self._constant(a), (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _constant(self, value: Tensor) -> str:
        name = self.tensor_attrs.get(value)
        if name is None:
            number = 0
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            name = self.tensor_attrs[value] = f"_tensor_constant{number}"
            setattr(self.root, name, value)
        return name

    # ---- tracing

    def trace(self, root: Module | Fn, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of ``root``. ``concrete_args`` are arguments that have these values and no others."""
        if isinstance(root, Module):
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root, self.root_module_name = root, type(root).__name__
            self.submodule_paths = {m: n for n, m in root.named_modules()}
        else:
            self.root, fn = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        _collect_tensors(self.root, "", self.tensor_attrs)
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"expected a function, got {type(fn)}")
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        parameters: dict[str, Any] = {}
        with self._patched(fn, parameters):
            result = fn(*args)
        typed = _annotation(fn, "return")
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=typed)
        self.submodule_paths = None
        return self.graph

    def create_args_for_root(
        self, root_fn: Fn, is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Fn, list[Any]]:
        """The function to run, and its arguments: proxies, and the values of ``concrete_args``."""
        code = inspect.unwrap(root_fn).__code__
        names = code.co_varnames
        total = code.co_argcount + code.co_kwonlyargcount
        skip = 1 if is_module else 0
        if is_module and total == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        args: list[Any] = [self.root] if is_module else []
        args += [self._argument(root_fn, n, concrete_args or {}) for n in names[skip:total]]
        if code.co_flags & inspect.CO_VARARGS:
            args.append(self.create_proxy("placeholder", "*" + names[total], (), {}))
            total += 1
        if code.co_flags & inspect.CO_VARKEYWORDS:
            args.append(self.create_proxy("placeholder", "**" + names[total], (), {}))
        if code.co_kwonlyargcount or code.co_flags & _COLLECTS:
            return _without_collecting(root_fn, len(args)), args
        return root_fn, args

    def _argument(self, fn: Fn, name: str, concrete: Mapping[str, object]) -> Any:
        parameter = inspect.signature(fn).parameters[name]
        default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        typed = _annotation(fn, name)
        if name not in concrete or concrete[name] is PH:
            return self.create_proxy("placeholder", name, default, {}, type_expr=typed)
        value = concrete[name]
        given = self.create_proxy("placeholder", name, (value,), {}, type_expr=typed)
        self.create_proxy("call_function", _specialized, (given, value, name), {})
        return value

    @contextmanager
    def _patched(self, fn: Fn, parameters: dict[str, object]) -> Iterator[None]:
        """Inside, calls and attributes of modules, and functions that are not entered, ask this tracer."""
        read, call = Module.__getattr__, Module.__call__

        def module_getattr(mod: Module, attr: str) -> Any:
            return self.getattr(attr, read(mod, attr), parameters)

        @functools.wraps(call)
        def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(mod, *args, **kwargs)

            _autowrap_check(patcher, _globals(getattr(type(mod), "forward", mod.forward)), self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        with _Patcher() as patcher:
            patcher.patch_method(Module, "__getattr__", module_getattr, deduplicate=False)
            patcher.patch_method(Module, "__call__", module_call, deduplicate=False)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, _globals(fn), self._autowrap_function_ids)
            for module in self._autowrap_search:
                _autowrap_check(patcher, vars(module), self._autowrap_function_ids)
            yield


def _globals(fn: Any) -> dict[str, Any]:
    """The globals of a function, also of one that is wrapped; empty for other callables."""
    return getattr(inspect.unwrap(fn), "__globals__", {})


def _annotation(fn: Fn, name: str) -> Any:
    """The type that a function states for a parameter; None for one that is only written down, as a string."""
    found = getattr(fn, "__annotations__", {}).get(name)
    return None if isinstance(found, str) else found


@has_side_effect
def _specialized(given: object, value: object, name: str) -> None:
    """AssertionError when an argument has another value than the one it was traced with."""
    if given is not value and not given == value:
        raise AssertionError(f"{name} has been specialized to have value {value} but got another value")


def _parameter_proxy(tracer: Tracer, name: str, value: Tensor, node: Any) -> Proxy:
    return ParameterProxy(tracer, node, name, value)


_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _without_collecting(fn: Fn, count: int) -> Fn:
    """``fn`` that takes all its ``count`` parameters by position, also those that collect arguments."""
    code = fn.__code__.replace(
        co_flags=fn.__code__.co_flags & ~_COLLECTS, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0
    )  # fmt: skip
    return FunctionType(code, fn.__globals__, fn.__name__, None, fn.__closure__)


def _collect_tensors(module: Module, prefix: str, found: dict[Tensor, str]) -> None:
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            found[value] = prefix + name
    for name, child in module.named_children():
        _collect_tensors(child, f"{prefix}{name}.", found)
