"""How a function becomes public: one decorator says where it is found, which element types it takes, and its forms.

``NAMESPACES["torch"]`` holds what ``tracecomp`` exports, ``NAMESPACES["linalg"]`` what ``tracecomp.linalg`` does, and
so on; ``NAMESPACES["Tensor"]`` the methods, which are set on ``Tensor`` at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numpy as np

from tracecomp.eager.modes import grad_enabled, modes, no_grad, scope
from tracecomp.eager.overrides import NOT_OVERRIDDEN, PLAIN, override
from tracecomp.eager.tensor import Tensor, assign_, before_write
from tracecomp.functional.autocast import casts
from tracecomp.functional.dtype_support import REAL, Kinds, accepting, refuse_complex
from tracecomp.functional.promotion import can_cast, dtype_argument
from tracecomp.ir.types import type_word

NAMESPACES: dict[str, dict[str, Any]] = {"torch": {}, "Tensor": {}}

_RENAMED = {"axis": "dim", "keepdims": "keepdim"}

Function = TypeVar("Function", bound=Callable[..., Any])


def function(
    *aliases: str, to: str = "torch Tensor", takes: Kinds = REAL, inplace: bool = False, composite: bool = False
) -> Callable[[Function], Function]:
    """Publish a function under its name (one trailing underscore is dropped) and ``aliases``.

    ``to`` lists the namespaces where it is found; an alias with a dot ("special.expit") is a place of its own.
    ``takes`` are the kinds of elements that it has a meaning for. ``inplace`` adds ``name_`` to names without a dot;
    ``composite`` leaves the name as a scope on the nodes it records. Keyword arguments ``axis`` and ``keepdims`` are
    accepted for ``dim`` and ``keepdim``, and ``out`` receives the result.
    """

    def decorate(fn: Function) -> Function:
        name = fn.__name__.removesuffix("_")
        call = _callable(fn, name, takes, composite)
        for alias in (name, *aliases):
            publish(call, *_places(alias, to))
            if inplace and "." not in alias:
                publish(in_place(call, f"{alias}_"), *_places(f"{alias}_", to))
        call.__module__ = _module_of(to.split()[0], fn)
        return cast("Function", call)

    return decorate


def _places(name: str, to: str) -> list[str]:
    return [name] if "." in name else [f"{space}.{name}" for space in to.split()]


def _module_of(space: str, fn: Callable[..., Any]) -> str:
    """Where users, and pickles, find a function of a namespace."""
    if space == "Tensor":
        return fn.__module__
    return "tracecomp" if space == "torch" else f"tracecomp.{space}"


_OUT_AS_IT_IS = frozenset({"aminmax", "complex", "gather", "index_select", "multinomial", "take"})
"""Functions whose ``out`` has to have the dtype of the result."""

_OUT_APART = frozenset({"cat", "gather", "index_select", "kthvalue", "masked_select", "stack", "take", "topk"})
"""Functions that read an operand after they have begun to write ``out``, which therefore cannot be the operand."""


def publish(value: Any, *places: str) -> None:
    """Export ``value`` under dotted names: "torch.finfo", "linalg.inv", "Tensor.T" (for a method or property)."""
    for place in places:
        space, _, name = place.rpartition(".")
        NAMESPACES.setdefault(space, {})[name] = value
        if space == "Tensor":
            setattr(Tensor, name, value)


def _callable(fn: Callable[..., Any], name: str, takes: Kinds, composite: bool) -> Callable[..., Any]:
    code, kinds = fn.__code__, fn.__annotations__
    positional = code.co_varnames[: code.co_argcount]
    places = tuple(i for i, p in enumerate(positional) if kinds.get(p) == "Tensor")
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else ""
    real = "complex" not in takes
    beside = real and any(_may_be_tensor(kinds.get(p, "")) for p in positional)
    run = accepting(_scoped(fn, name) if composite else fn, name, takes)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        for x in (*args, *kwargs.values()) if kwargs else args:
            if type(x) not in PLAIN:
                found = override(public, args, kwargs)
                if found is not NOT_OVERRIDDEN:
                    return found
                break
        for place in places:
            if place < len(args):
                if not isinstance(args[place], Tensor):
                    _refuse(name, positional[place], place, args[place])
                if real and args[place]._data.dtype.kind == "c":
                    refuse_complex(name, args)
        if beside:
            refuse_complex(name, args)
        if kwargs:
            if real:
                refuse_complex(name, kwargs.values())
            if rest in kwargs:
                args = (*args, kwargs.pop(rest))
            return _with_keywords(run, kinds, name, args, kwargs)
        return run(*args)

    call.__name__ = call.__qualname__ = name
    call.__takes__ = takes  # type: ignore[attr-defined]
    public = casts(call)
    return public


def _may_be_tensor(kind: str) -> bool:
    """Whether what is annotated so may be a tensor and need not be one."""
    return kind != "Tensor" and ("Tensor" in kind or "Operand" in kind)


def _scoped(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if modes.recorder is None:
            return fn(*args, **kwargs)
        with scope(name):
            return fn(*args, **kwargs)

    return run


def _refuse(name: str, argument: str, place: int, value: Any) -> None:
    raise TypeError(
        f"{name}(): argument '{argument}' (position {place + 1}) must be Tensor, not {type(value).__name__}"
    )


def _with_keywords(
    run: Callable[..., Any], kinds: dict[str, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    for other, ours in _RENAMED.items():
        if other in kwargs and other not in kinds:
            kwargs[ours] = kwargs.pop(other)
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = dtype_argument(kwargs["dtype"], name)
    if "out" not in kwargs or "out" in kinds:
        return run(*args, **kwargs)
    out = kwargs.pop("out")
    if isinstance(out, Tensor) and "layout" in kinds:  # a factory makes what fits
        kwargs.setdefault("dtype", out.dtype)
    for target in out if isinstance(out, tuple | list) else (out,):
        check_apart(target, (*args, *kwargs.values()), name)
    result = run(*args, **kwargs)
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
    if name in _OUT_AS_IT_IS and out.dtype is not result.dtype:
        raise RuntimeError(
            f"{name}(): Expected out tensor to have dtype {type_word(result.dtype).lower()}, but got "
            f"{type_word(out.dtype).lower()} instead"
        )
    check_castable(result, out)
    with no_grad():
        if out.shape != result.shape:
            out.resize_(result.shape)
        assign_(out, result)
    return out


def check_apart(out: Any, given: Iterable[Any], name: str) -> None:
    """RuntimeError when ``out`` is memory that operands also show, other than element by element."""
    for x in given:
        if isinstance(x, tuple | list):
            check_apart(out, x, name)
        elif isinstance(x, Tensor) and isinstance(out, Tensor) and np.may_share_memory(x._data, out._data):
            a, b = x._data, out._data
            same = (a.shape, a.strides, x._address()) == (b.shape, b.strides, out._address())
            if (name in _OUT_APART or (a.shape == b.shape and not same)) and np.shares_memory(a, b):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation."
                )


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

    @functools.wraps(call)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if type(input) not in PLAIN:
            found = override(run, (input, *args), kwargs)
            if found is not NOT_OVERRIDDEN:
                return cast("Tensor", found)
        return store_inplace(input, call(before_write(input, args), *args, **kwargs))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place form of :func:`{call.__name__}`."
    return run
