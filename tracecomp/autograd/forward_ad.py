"""Forward derivatives: the dual tensors of ``torch.autograd.forward_ad``, over ``eager/tangents.py``."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracecomp.eager.modes import modes
from tracecomp.eager.tangents import Level, apart, set_tangent, tangent
from tracecomp.eager.tensor import Tensor

_levels: list[Level] = []


def __getattr__(name: str) -> Any:
    """``_current_level``: the number of the innermost level, -1 outside."""
    if name == "_current_level":
        return len(_levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnpackedDualTensor(NamedTuple):
    """The result of :func:`unpack_dual`."""

    primal: Tensor
    tangent: Tensor | None


class dual_level:
    """A context in which tensors can be dual; they lose their tangents when it ends. RuntimeError for nested levels."""

    def __enter__(self) -> dual_level:
        if _levels:
            raise RuntimeError("Nested forward mode AD is not supported at the moment")
        level = Level()
        _levels.append(level)
        level.begin()
        return self

    def __exit__(self, *exception: Any) -> None:
        _levels.pop().end()


def enter_dual_level() -> int:
    """Begin a level that :func:`exit_dual_level` ends; return its number."""
    dual_level().__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level that :func:`enter_dual_level` began. RuntimeError when there is none."""
    if not _levels:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created.")
    _levels.pop().end()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same elements whose derivative in the level is ``tangent``, of the same shape and dtype.

    RuntimeError outside a level or when the two do not match, ValueError for integers.
    """
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, x in (("primal", tensor), ("tangent", tangent)):
        if not x.dtype.differentiable:
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    if tensor.shape != tangent.shape or tensor.dtype is not tangent.dtype:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size or dtype than that of the original Tensor, "
            f"this is not supported. Tensor is of {tensor.dtype} and size {list(tensor.shape)} while the given "
            f"forward gradient is of {tangent.dtype} and size {list(tangent.shape)}."
        )
    found: Tensor = dual(tensor, tangent, _levels[-1])
    return found


def dual(tensor: Tensor, tangent: Tensor, level: Level) -> Any:
    """``tensor``, its memory and its history, with ``tangent`` in ``level``."""
    found = apart(tensor, True)
    set_tangent(found, level, tangent)
    return found


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its derivative in the level, and this; None when it does not depend on a dual tensor."""
    found = tangent(tensor, _levels[-1]) if _levels else None
    if found is None:
        return UnpackedDualTensor(tensor, None)
    with _levels[-1].outside():
        return UnpackedDualTensor(apart(tensor, modes.grad), found)
