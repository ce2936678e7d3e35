"""Functions and methods that are replaced while a tracer runs a program. Tracers of other libraries use them too."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Set
from contextlib import ExitStack
from typing import Any

from tracecomp.fx.proxy import Proxy
from tracecomp.nn.module import Module

Fn = Callable[..., Any]

_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
"""Functions that are not entered: the identity of a module's globals and a name -> these globals."""
_orig_module_call = Module.__call__
_orig_module_getattr = Module.__getattr__
_PATCHED = "__fx_already_patched"


class _Patcher(ExitStack):
    """Replaces functions in globals and methods of classes until it is left."""

    def __init__(self) -> None:
        super().__init__()
        self.visited: set[int] = set()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Fn, deduplicate: bool = True) -> None:
        """Replace ``frame_dict[name]``, unless a patch with ``deduplicate`` has done so; a builtin is shadowed."""
        if getattr(frame_dict.get(name), _PATCHED, False):
            return
        setattr(new_fn, _PATCHED, deduplicate)
        if name in frame_dict:
            self.callback(frame_dict.__setitem__, name, frame_dict[name])
        else:
            self.callback(frame_dict.__delitem__, name)
        frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Fn, deduplicate: bool = True) -> None:
        """Replace a method of ``cls``, its own or inherited."""
        if getattr(getattr(cls, name), _PATCHED, False):
            return
        setattr(new_fn, _PATCHED, deduplicate)
        if name in vars(cls):
            self.callback(setattr, cls, name, vars(cls)[name])
        else:
            self.callback(delattr, cls, name)
        setattr(cls, name, new_fn)

    def visit_once(self, thing: object) -> bool:
        """Whether this is the first call with ``thing``."""
        first = id(thing) not in self.visited
        self.visited.add(id(thing))
        return first


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Have calls of the functions given to ``wrap`` become nodes."""
    for (_, name), space in list(_wrapped_fns_to_patch.items()):
        original = space.get(name, getattr(builtins, name, None))
        if original is not None:
            patcher.patch(space, name, _create_wrapped_func(original))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: Set[int]) -> None:
    """Have calls of the functions in ``frame_dict`` that are among ``function_ids`` become nodes."""
    if patcher.visit_once(frame_dict):
        for name, value in list(frame_dict.items()):
            if not name.startswith("_") and callable(value) and id(value) in function_ids:
                patcher.patch(frame_dict, name, _create_wrapped_func(value))


def _create_wrapped_func(orig_fn: Fn) -> Fn:
    """``orig_fn`` whose calls with proxies become nodes."""

    @functools.wraps(orig_fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return run


def _find_proxy(*objects: object) -> Proxy | None:
    """The first proxy among ``objects`` and inside their lists, tuples and dicts."""
    for a in objects:
        if isinstance(a, Proxy):
            return a
        parts = tuple(a.values()) if isinstance(a, dict) else a
        if isinstance(parts, tuple | list):
            proxy = _find_proxy(*parts)
            if proxy is not None:
                return proxy
    return None
