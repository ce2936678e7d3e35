"""How a torch-named function becomes public: one decorator gives function, Tensor method, ``x.op_()`` and ``out=``.

``PUBLIC`` holds what ``tracecomp`` exports, ``NAMESPACES["linalg"]`` what ``tracecomp.linalg`` does; methods are set on
``Tensor`` when the module is imported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from tracecomp.eager.modes import grad_enabled, modes, no_grad, scope
from tracecomp.eager.tensor import Tensor, assign_, before_write
from tracecomp.functional.autocast import casts
from tracecomp.functional.dtype_support import accepting, refuse_complex, takes_complex
from tracecomp.functional.promotion import can_cast, dtype_argument
from tracecomp.ir.types import type_word

PUBLIC: dict[str, Any] = {}
NAMESPACES: dict[str, dict[str, Any]] = {}

_RENAMED = {"axis": "dim", "keepdims": "keepdim"}


def function(
    *aliases: str, method: bool = True, only_method: bool = False, inplace: bool = False, composite: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a function under its name (one trailing underscore is dropped) and ``aliases``.

    ``inplace`` adds ``name_``; ``composite`` leaves the name as a scope on the nodes it records. Keyword arguments
    ``axis`` and ``keepdims`` are accepted for ``dim`` and ``keepdim``, and ``out`` receives the result.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        name = fn.__name__.removesuffix("_")
        call = _callable(fn, name, composite)
        for public in (name, *aliases):
            publish(public, call, method=method, only_method=only_method)
            if inplace:
                publish(public + "_", in_place(call, public + "_"), method=True, only_method=only_method)
        return call

    return decorate


def namespaced(namespace: str, *aliases: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a composite function as ``tracecomp.<namespace>.<name>`` only."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        name = fn.__name__.removesuffix("_")
        call = _callable(fn, name, True)
        for public in (name, *aliases):
            share(namespace, public, call)
        return call

    return decorate


def share(namespace: str, name: str, call: Any) -> None:
    """Export ``call`` as ``tracecomp.<namespace>.<name>`` too."""
    NAMESPACES.setdefault(namespace, {})[name] = call


def publish(name: str, call: Any, *, method: bool = False, only_method: bool = False) -> None:
    """Export ``call`` as ``tracecomp.<name>`` and, if asked, as a Tensor method."""
    if not only_method:
        PUBLIC[name] = call
    if method or only_method:
        setattr(Tensor, name, call)


def _callable(fn: Callable[..., Any], name: str, composite: bool) -> Callable[..., Any]:
    if composite:
        inner = fn

        @functools.wraps(inner)
        def fn(*args: Any, **kwargs: Any) -> Any:
            if modes.recorder is None:
                return inner(*args, **kwargs)
            with scope(name):
                return inner(*args, **kwargs)

    fn = accepting(fn, name)
    code = inspect.unwrap(fn).__code__
    places = _tensor_places(fn, code)
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else ""
    real = not takes_complex(name)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        for place in places:
            if place < len(args):
                if not isinstance(args[place], Tensor):
                    _refuse(fn, name, place, args[place])
                if real and args[place]._data.dtype.kind == "c":
                    refuse_complex(name, args)
        if kwargs:
            if real:
                refuse_complex(name, kwargs.values())
            if rest in kwargs:
                args = (*args, kwargs.pop(rest))
            return _with_keywords(fn, name, args, kwargs)
        return fn(*args)

    call.__name__ = call.__qualname__ = name
    return casts(call)


def needs_tensors(fn: Callable[..., Any], module: str) -> Callable[..., Any]:
    """``fn`` as a function of ``module``: with ``out``, and TypeError when a positional argument should be a tensor."""
    name = fn.__name__
    fn = accepting(fn, name)
    places = _tensor_places(fn, inspect.unwrap(fn).__code__)
    real = not takes_complex(name)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        for place in places:
            if place < len(args) and not isinstance(args[place], Tensor):
                _refuse(fn, name, place, args[place])
        if real:
            refuse_complex(name, (*args, *kwargs.values()))
        return _with_keywords(fn, name, args, kwargs) if kwargs else fn(*args, **kwargs)

    call.__module__ = module
    return call


def _tensor_places(fn: Callable[..., Any], code: CodeType) -> tuple[int, ...]:
    """Positions of the parameters that must be tensors."""
    return tuple(i for i, p in enumerate(code.co_varnames[: code.co_argcount]) if fn.__annotations__.get(p) == "Tensor")


def _refuse(fn: Callable[..., Any], name: str, place: int, value: Any) -> None:
    argument = inspect.unwrap(fn).__code__.co_varnames[place]
    raise TypeError(
        f"{name}(): argument '{argument}' (position {place + 1}) must be Tensor, not {type(value).__name__}"
    )


def _with_keywords(fn: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for other, ours in _RENAMED.items():
        if other in kwargs and other not in fn.__annotations__:
            kwargs[ours] = kwargs.pop(other)
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = dtype_argument(kwargs["dtype"], name)
    if "out" not in kwargs or "out" in fn.__annotations__:
        return fn(*args, **kwargs)
    out = kwargs.pop("out")
    if isinstance(out, Tensor) and "layout" in fn.__annotations__:  # a factory makes what fits
        kwargs.setdefault("dtype", out.dtype)
    result = fn(*args, **kwargs)
    return result if out is None else store(out, result, name)


def store(out: Any, result: Any, name: str) -> Any:
    """Write ``result`` into ``out`` (a tensor, or as many as there are results) and return ``out``."""
    if isinstance(out, tuple | list) and isinstance(result, tuple | list):
        for target, value in zip(out, result, strict=True):
            store(target, value, name)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if grad_enabled() and (out.requires_grad or result.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    check_castable(result, out)
    with no_grad():
        if out.shape != result.shape:
            out.resize_(result.shape)
        assign_(out, result)
    return out


def check_castable(result: Tensor, target: Tensor) -> None:
    if not can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"result type {type_word(result.dtype)} can't be cast to the desired output type {type_word(target.dtype)}"
        )


def store_inplace(target: Tensor, result: Tensor) -> Tensor:
    """``target`` with its elements replaced by ``result``, which must have its shape and a dtype that fits."""
    if result.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    check_castable(result, target)
    assign_(target, result)
    return target


def in_place(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``call`` as the method ``name`` that writes its result into its first operand."""

    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return store_inplace(input, call(before_write(input, args), *args, **kwargs))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place form of :func:`{call.__name__}`."
    return run
