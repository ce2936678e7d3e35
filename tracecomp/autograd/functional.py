"""Higher-level derivatives: ``jacobian``, ``hessian``, ``vjp``, ``jvp``, ``hvp``, ``vhp``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.autograd.api import grad
from tracecomp.eager.modes import enable_grad
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.primitives import prim

Inputs = Tensor | tuple[Tensor, ...]
Func = Callable[..., Any]


def jacobian(
    func: Func, inputs: Inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """d outputs / d inputs, of shape ``output.shape + input.shape``; nested tuples for several of either."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'jacobian(): strategy must be "forward-mode" or "reverse-mode", got {strategy!r}')
    with enable_grad():
        ins = _prepared(inputs, create_graph)
        outs = _listed(func(*ins))
        _check_strict(strict, outs)
        rows = tuple(tuple(_jacobian(o, ins, create_graph, strict)) for o in outs[0])
    return _shaped(rows, outs[1], not isinstance(inputs, Tensor))


def _jacobian(output: Tensor, ins: Sequence[Tensor], create_graph: bool, strict: bool) -> list[Tensor]:
    flat = prim.reshape(output, shape=(output.numel(),))
    columns: list[list[Tensor]] = [[] for _ in ins]
    for k in range(output.numel()):
        element = prim.reshape(prim.slice(flat, starts=(k,), stops=(k + 1,), steps=(1,)), shape=())
        for column, x, g in zip(columns, ins, _gradients(element, ins, create_graph, strict), strict=True):
            column.append(_zeros(x) if g is None else g)
    return [_stacked(c, (*output.shape, *x.shape), x) for c, x in zip(columns, ins, strict=True)]


def hessian(
    func: Func, inputs: Inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """Second derivatives of a scalar function."""

    def gradient(*ins: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = jacobian(lambda *xs: _scalar(func(*xs)), ins, create_graph=True, strict=strict)
        return found

    result = jacobian(gradient, (inputs,) if isinstance(inputs, Tensor) else inputs, create_graph, strict)
    return result[0][0] if isinstance(inputs, Tensor) else result


def vjp(
    func: Func, inputs: Inputs, v: object = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``(outputs, v^T J)``; ``v`` is optional for a scalar output."""
    with enable_grad():
        ins = _prepared(inputs, create_graph)
        outs, many = _listed(func(*ins))
        cotangents = _vectors(v, outs)
        back = _gradients(outs, ins, create_graph, strict, cotangents)
        found = [_zeros(x) if g is None else g for x, g in zip(ins, back, strict=True)]
    return _result(outs, many, create_graph), _result(found, not isinstance(inputs, Tensor), create_graph)


def jvp(
    func: Func, inputs: Inputs, v: object = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``(outputs, J v)``, by differentiating the vector-Jacobian product in its vector."""
    with enable_grad():
        ins = _prepared(inputs, create_graph)
        outs, many = _listed(func(*ins))
        tangents = _vectors(v, ins)
        dummies = [_zeros(o).requires_grad_() for o in outs]
        back = _gradients(outs, ins, True, strict, dummies)
        pairs = [(g, t) for g, t in zip(back, tangents, strict=True) if g is not None]
        found = _gradients([g for g, _ in pairs], dummies, create_graph, strict, [t for _, t in pairs])
        filled = [_zeros(o) if g is None else g for o, g in zip(outs, found, strict=True)]
    return _result(outs, many, create_graph), _result(filled, many, create_graph)


def vhp(
    func: Func, inputs: Inputs, v: object = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``(output, v^T H)`` of a scalar function."""
    with enable_grad():
        ins = _prepared(inputs, create_graph)
        out = _scalar(func(*ins))
        tangents = _vectors(v, ins)
        first = [_zeros(x) if g is None else g for x, g in zip(ins, _gradients(out, ins, True, strict), strict=True)]
        second = _gradients(first, ins, create_graph, strict, tangents)
        found = [_zeros(x) if g is None else g for x, g in zip(ins, second, strict=True)]
    return _result([out], False, create_graph), _result(found, not isinstance(inputs, Tensor), create_graph)


def hvp(
    func: Func, inputs: Inputs, v: object = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``(output, H v)`` of a scalar function; the Hessian is symmetric, so this is ``vhp``."""
    return vhp(func, inputs, v, create_graph, strict)


def _prepared(inputs: Inputs, create_graph: bool) -> list[Tensor]:
    """Return inputs that require grad, with separate histories."""
    found = []
    for x in _listed(inputs)[0]:
        if create_graph and x.requires_grad:
            found.append(prim.reshape(x, shape=tuple(x.shape)))
        else:
            found.append(x.detach().requires_grad_())
    return found


def _listed(values: Any) -> tuple[list[Tensor], bool]:
    many = isinstance(values, tuple | list)
    listed = list(values) if many else [values]
    for x in listed:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected a Tensor or a tuple of Tensors, but got {type(x).__name__}")
    return listed, many


def _scalar(out: object) -> Tensor:
    values, many = _listed(out)
    if many and len(values) != 1:
        raise RuntimeError("The function given to this transform should return a single Tensor")
    if values[0].numel() != 1:
        raise RuntimeError(
            "The Tensor returned by the function given to this transform should contain a single element"
        )
    return prim.reshape(values[0], shape=())


def _gradients(
    outs: Tensor | Sequence[Tensor], ins: Sequence[Tensor], create_graph: bool, strict: bool,
    cotangents: Sequence[Tensor] | None = None,
) -> Sequence[Tensor | None]:  # fmt: skip
    listed = [outs] if isinstance(outs, Tensor) else list(outs)
    given = [None] * len(listed) if cotangents is None else list(cotangents)
    used = [(o, c) for o, c in zip(listed, given, strict=True) if o.requires_grad]
    if not used:
        return [None] * len(ins)
    found = grad(
        [o for o, _ in used], ins, [c for _, c in used], create_graph=create_graph, retain_graph=True, allow_unused=True
    )
    if strict and any(g is None for g in found):
        raise RuntimeError("The output of the user-provided function is independent of an input in strict mode.")
    return found


def _check_strict(strict: bool, outs: tuple[list[Tensor], bool]) -> None:
    if strict and not all(o.requires_grad for o in outs[0]):
        raise RuntimeError("The output of the user-provided function does not require gradients in strict mode.")


def _vectors(v: object, like: Sequence[Tensor]) -> list[Tensor]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError("The vector v can only be None if there is a single value with a single element.")
        return [create("full", value=1.0, shape=tuple(like[0].shape), dtype=like[0].dtype)]
    vectors = _listed(v)[0]
    if len(vectors) != len(like):
        raise RuntimeError(f"v has {len(vectors)} elements where {len(like)} are expected")
    for i, (t, x) in enumerate(zip(vectors, like, strict=True)):
        if t.shape != x.shape:
            raise RuntimeError(f"Entry {i} in v has invalid size: should be {x.shape} but got {t.shape}")
    return vectors


def _zeros(x: Tensor) -> Tensor:
    return create("full", value=0.0, shape=tuple(x.shape), dtype=x.dtype)


def _stacked(rows: list[Tensor], shape: tuple[int, ...], x: Tensor) -> Tensor:
    if not rows:
        return create("full", value=0.0, shape=shape, dtype=x.dtype)
    lifted = [prim.reshape(r, shape=(1, *x.shape)) for r in rows]
    return prim.reshape(prim.concat(*lifted, axis=0), shape=shape)


def _shaped(rows: tuple[tuple[Tensor, ...], ...], many_outs: bool, many_ins: bool) -> Any:
    found: Any = tuple(r if many_ins else r[0] for r in rows)
    return found if many_outs else found[0]


def _result(values: Sequence[Tensor], many: bool, create_graph: bool) -> Any:
    kept = tuple(v if create_graph else v.detach() for v in values)
    return kept if many else kept[0]
