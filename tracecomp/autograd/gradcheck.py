"""Comparison of derivatives with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from tracecomp.autograd.api import grad
from tracecomp.autograd.forward_ad import dual_level, make_dual, unpack_dual
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.ir.types import complex128, float64

Array = np.ndarray[Any, Any]
Side: TypeAlias = Callable[[Callable[..., object], tuple[object, ...], Tensor, int, Tensor], Array]
"""A method for Jacobians: takes the function, its inputs, the varied one, the output's number, and the output."""


class GradcheckError(RuntimeError):
    """Numerical and analytical derivatives differ."""


def gradcheck(
    func: Callable[..., object],
    inputs: Tensor | Sequence[object],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_ad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare the Jacobians of ``func`` at float64 or complex128 ``inputs`` with central differences of step ``eps``.

    Real and imaginary parts count as separate variables.
    """
    try:
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        sides = [side for side, wanted in ((_by_reverse, check_backward_ad), (_by_forward, check_forward_ad)) if wanted]
        _check(func, given, eps, atol, rtol, sides)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., object],
    inputs: Tensor | Sequence[object],
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
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Run ``gradcheck`` on the gradient of ``func``, with random gradients of its outputs by default."""
    ins = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outs = _outputs(func(*ins))
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        given = [wrap(_drawn(generator, o)).requires_grad_() for o in outs]
    else:
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        xs, gs = args[: len(ins)], args[len(ins) :]
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        found = grad(_outputs(func(*xs)), wanted, gs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient, (*ins, *given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev,
    )  # fmt: skip


def _drawn(generator: np.random.Generator, like: Tensor) -> Array:
    x = generator.standard_normal(like.shape)
    x = x + 1j * generator.standard_normal(like.shape) if like.dtype.is_complex else x
    return np.asarray(x).astype(like._data.dtype)


def _outputs(result: Any) -> list[Tensor]:
    listed = [result] if isinstance(result, Tensor) else list(result)
    return [o for o in listed if isinstance(o, Tensor) and o.dtype.differentiable]


def _check(
    func: Callable[..., object], inputs: tuple[object, ...], eps: float, atol: float, rtol: float, sides: Sequence[Side]
) -> None:
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for i, x in enumerate(checked):
        if x.dtype not in (float64, complex128):
            raise ValueError(f"gradcheck: input {i} is {x.dtype}; finite differences need float64 or complex128")
    outs = _outputs(func(*inputs))
    for k, out in enumerate(outs):
        for i, x in enumerate(checked):
            numerical = _numerical(func, inputs, x, k, eps)
            for side in sides:
                analytical = side(func, inputs, x, k, out)
                if not np.allclose(analytical, numerical, rtol=rtol, atol=atol, equal_nan=True):
                    raise GradcheckError(
                        f"Jacobian mismatch for output {k} with respect to input {i},\n"
                        f"numerical:{numerical}\nanalytical:{analytical}\n"
                    )


def _numerical(func: Callable[..., object], inputs: tuple[object, ...], x: Tensor, k: int, eps: float) -> Array:
    """The Jacobian of output ``k`` in ``x``, one row per element of ``x``, or two per complex one."""

    def value() -> Array:
        return _reals(_outputs(func(*inputs))[k]._data)

    rows = []
    x._shared_storage().share()  # not counted as a write: saved tensors of the analytical side stay valid
    for position in np.ndindex(x._data.shape):
        before = x._data[position]
        for unit in _units(x):
            x._data[position] = before + eps * unit
            high = value()
            x._data[position] = before - eps * unit
            low = value()
            x._data[position] = before
            rows.append((high - low) / (2 * eps))
    return np.array(rows).reshape(len(rows), -1)


def _units(x: Tensor) -> tuple[complex, ...]:
    """The directions in which one element can move."""
    return (1.0, 1j) if x.dtype.is_complex else (1.0,)


def _reals(array: Array) -> Array:
    """The elements, flattened; real and imaginary parts alternate."""
    if array.dtype.kind != "c":
        return array.astype(np.float64).ravel()
    return array.astype(np.complex128).ravel().view(np.float64)


def _by_forward(func: Callable[..., object], inputs: tuple[object, ...], x: Tensor, k: int, out: Tensor) -> Array:
    """The Jacobian by forward mode, in the form of ``_numerical``."""
    rows = []
    for position, unit in product(range(x.numel()), _units(x)):
        step = np.zeros(x._data.shape, x._data.dtype)
        step.ravel()[position] = unit
        with dual_level():
            moved = make_dual(x.detach().requires_grad_(x.requires_grad), wrap(step))
            tangent = unpack_dual(_outputs(func(*(moved if given is x else given for given in inputs)))[k]).tangent
        rows.append(np.zeros(out.numel() * len(_units(out))) if tangent is None else _reals(tangent._data))
    return np.array(rows).reshape(len(rows), -1)


def _by_reverse(func: Callable[..., object], inputs: tuple[object, ...], x: Tensor, k: int, out: Tensor) -> Array:
    """The Jacobian by reverse mode, in the form of ``_numerical``."""
    columns = []
    rows = x.numel() * len(_units(x))
    for k, unit in product(range(out.numel()), _units(out)):
        seed = np.zeros(out._data.shape, out._data.dtype)
        seed.ravel()[k] = unit
        found = grad(out, x, wrap(seed), retain_graph=True, allow_unused=True)[0] if out.requires_grad else None
        columns.append(np.zeros(rows) if found is None else _reals(found._data))
    return np.array(columns).T.reshape(rows, -1)
