"""Element types of functions: declared where a function is published, and rejected here like a missing kernel in
PyTorch.

A function raises NotImplementedError when none of its tensors has a supported type. It also raises when a tensor is
complex and the function is not defined for complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.promotion import not_implemented

Kinds: TypeAlias = tuple[str, ...]

COMPLEX: Kinds = ("complex",)
FLOATS: Kinds = ("float",)
NUMBERS: Kinds = ("int", "float")
REAL: Kinds = ("bool", "int", "float")
ALL: Kinds = REAL + COMPLEX


def refuse_complex(name: str, values: Iterable[object]) -> None:
    """NotImplementedError when a complex tensor is among ``values``."""
    for x in values:
        if isinstance(x, Tensor) and x._data.dtype.kind == "c":
            raise not_implemented(f"{name}_cpu", x.dtype)


def accepting(fn: Callable[..., object], name: str, takes: Kinds) -> Callable[..., Any]:
    """Wrap ``fn`` to reject tensors none of which is of the real kinds in ``takes``."""
    if takes in (REAL, ALL):
        return fn
    refused = [kind for kind in REAL if kind not in takes]
    if not refused:
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = [x.dtype for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if kinds and all(dtype.kind in refused for dtype in kinds):
            raise not_implemented(f"{name}_cpu", kinds[0])
        return fn(*args, **kwargs)

    return call
