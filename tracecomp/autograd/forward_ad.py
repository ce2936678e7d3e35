"""Forward derivatives: dual tensors of ``torch.autograd.forward_ad``, and the products behind ``func.jvp``.

A Jacobian-vector product is the derivative of the vector-Jacobian product in its vector, so operators need no forward
rule. A dual tensor is a leaf that requires grad, and the level keeps its tangent until results are unpacked:
computations in ``no_grad`` in between have no tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracecomp.autograd.api import grad
from tracecomp.eager.grad_fn import AccumulateGrad
from tracecomp.eager.modes import enable_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.primitives import prim

_levels: list[dual_level] = []


class UnpackedDualTensor(NamedTuple):
    """The result of :func:`unpack_dual`."""

    primal: Tensor
    tangent: Tensor | None


class dual_level:
    """A context in which tensors can be dual; they lose their tangents when it ends. RuntimeError for nested levels."""

    def __init__(self) -> None:
        self.duals: list[Tensor] = []
        self.tangents: list[Tensor] = []
        self.fresh: set[Tensor] = set()

    def __enter__(self) -> dual_level:
        if _levels:
            raise RuntimeError("Nested forward mode AD is not supported at the moment")
        _levels.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        _levels.remove(self)


def enter_dual_level() -> int:
    """Begin a level that :func:`exit_dual_level` ends; return its number."""
    dual_level().__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level that :func:`enter_dual_level` began. RuntimeError when there is none."""
    if not _levels:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created.")
    _levels[-1].__exit__()


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
    current = _levels[-1]
    if tensor.requires_grad:
        with enable_grad():
            dual: Tensor = prim.reshape(tensor, shape=tuple(tensor.shape))
    else:
        dual = tensor.detach().requires_grad_()
        current.fresh.add(dual)
    current.duals.append(dual)
    current.tangents.append(tangent)
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the tensor without its derivative in the level, and the derivative; None when it does not depend on a dual
    tensor."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    current = _levels[-1]
    if not current.duals or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    with enable_grad():
        (tangent,), vectors = push_forward([tensor], current.duals, current.tangents)
    fresh = current.fresh.union(vectors)
    return UnpackedDualTensor(without(tensor, fresh), without(tangent, fresh))


def gradients(outs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any]) -> list[Tensor | None]:
    """Vector-Jacobian products that can be differentiated; None for unused inputs."""
    used = [(o, c) for o, c in zip(outs, cotangents, strict=True) if o.requires_grad]
    if not used:
        return [None] * len(inputs)
    found = grad(
        [o for o, _ in used], inputs, [c for _, c in used], create_graph=True, retain_graph=True, allow_unused=True
    )
    return list(found)


def push_forward(
    outs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[object]
) -> tuple[list[Tensor | None], list[Tensor]]:
    """Jacobian-vector products (None for outputs that use no input), and the leaves created for them."""
    vectors = [T.zeros_like(o).requires_grad_() for o in outs]
    back = gradients(outs, inputs, vectors)
    pairs = [(g, t) for g, t in zip(back, tangents, strict=True) if g is not None]
    return gradients([g for g, _ in pairs], vectors, [t for _, t in pairs]), vectors


def without(t: object, fresh: set[Tensor]) -> Any:
    """``t`` detached, unless its history leads to a leaf that is not ``fresh``: an outer transform differentiates
    it."""
    return t if not isinstance(t, Tensor) or _leads_elsewhere(t, fresh) else t.detach()


def _leads_elsewhere(t: Tensor, fresh: set[Tensor]) -> bool:
    if t.grad_fn is None:
        return t.requires_grad and t not in fresh
    seen, stack = set(), [t.grad_fn]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, AccumulateGrad) and node.variable not in fresh:
            return True
        stack.extend(e[0] for e in node.edges if e is not None)
    return False
