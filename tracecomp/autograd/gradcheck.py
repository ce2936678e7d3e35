"""Derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.autograd.api import grad
from tracecomp.ir.types import float64
from tracecomp.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """Numerical and analytical derivatives differ."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Compare the Jacobians of ``func`` at float64 ``inputs`` with central differences of step ``eps``."""
    try:
        _check(func, (inputs,) if isinstance(inputs, Tensor) else tuple(inputs), eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """``gradcheck`` of the gradient of ``func``, with random gradients of its outputs unless they are given."""
    ins = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outs = _outputs(func(*ins))
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        given = [wrap(generator.standard_normal(o.shape).astype(o._data.dtype)).requires_grad_() for o in outs]
    else:
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        xs, gs = args[: len(ins)], args[len(ins) :]
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        found = grad(_outputs(func(*xs)), wanted, gs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(gradient, (*ins, *given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)


def _outputs(result: Any) -> list[Tensor]:
    listed = [result] if isinstance(result, Tensor) else list(result)
    return [o for o in listed if isinstance(o, Tensor) and o.dtype.is_floating_point]


def _check(func: Callable[..., Any], inputs: tuple[Any, ...], eps: float, atol: float, rtol: float) -> None:
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for i, x in enumerate(checked):
        if x.dtype is not float64:
            raise ValueError(f"gradcheck: input {i} is {x.dtype}; finite differences need float64")
    outs = _outputs(func(*inputs))
    for k, out in enumerate(outs):
        for i, x in enumerate(checked):
            numerical = _numerical(func, inputs, x, k, eps)
            analytical = _analytical(out, x)
            if not np.allclose(analytical, numerical, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {k} with respect to input {i},\n"
                    f"numerical:{numerical}\nanalytical:{analytical}\n"
                )


def _numerical(func: Callable[..., Any], inputs: tuple[Any, ...], x: Tensor, k: int, eps: float) -> Array:
    """The Jacobian of output ``k`` in ``x``, one row per element of ``x``."""

    def value() -> Array:
        return _outputs(func(*inputs))[k]._data.astype(np.float64).ravel()

    rows = []
    for position in np.ndindex(x._data.shape):
        before = x._data[position]
        x._data[position] = before + eps
        high = value()
        x._data[position] = before - eps
        low = value()
        x._data[position] = before
        rows.append((high - low) / (2 * eps))
    return np.array(rows).reshape(x.numel(), -1)


def _analytical(out: Tensor, x: Tensor) -> Array:
    """The Jacobian by reverse mode, one row per element of ``x``."""
    columns = []
    for k in range(out.numel()):
        seed = np.zeros(out._data.shape, out._data.dtype)
        seed.ravel()[k] = 1.0
        found = grad(out, x, wrap(seed), retain_graph=True, allow_unused=True)[0] if out.requires_grad else None
        columns.append(np.zeros(x.numel()) if found is None else found._data.astype(np.float64).ravel())
    return np.array(columns).T.reshape(x.numel(), -1)
