"""Steps of pickling that checkpoints name: ``torch._tensor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor

__all__ = ["Tensor"]


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[object, ...], state: object) -> Any:
    """The object that ``func(*args)`` makes, as one of class ``new_type`` with the attributes in ``state``."""
    rebuilt = func(*args)
    if type(rebuilt) is not new_type:
        rebuilt = rebuilt.as_subclass(new_type)
    own = getattr(new_type, "__setstate__", None)
    if own is not None and own is not getattr(Tensor, "__setstate__", None):
        rebuilt.__setstate__(state)
        return rebuilt
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(rebuilt, name, value)
    return rebuilt
