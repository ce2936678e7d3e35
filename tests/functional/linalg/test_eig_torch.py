"""Eigenvalues and eigenvectors of general matrices, and complex exponentials and spreads, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.functional.reference import torch

RNG = np.random.default_rng(3)
MATRICES = {
    "real": RNG.standard_normal((5, 5)),
    "real batches": RNG.standard_normal((2, 3, 4, 4)),
    "complex": RNG.standard_normal((4, 4)) + 1j * RNG.standard_normal((4, 4)),
    "real eigenvalues": np.diag([3.0, 1.0, -2.0]) + np.triu(RNG.standard_normal((3, 3)), 1),
    "one": np.array([[2.0 - 1.0j]]),
}


def by_vectors(P: Any, x: Any) -> Any:
    """Depends on the eigenvectors, but not on their phases."""
    values, vectors = P.linalg.eig(x)
    ratio = vectors / vectors[..., :1, :]
    return (ratio.real.cos() * values.abs().unsqueeze(-2)).sum() + (vectors.abs() ** 3).sum()


def by_values(P: Any, x: Any) -> Any:
    return (P.linalg.eigvals(x) ** 2 * (1 - 2j)).real.sum() + P.linalg.eig(x)[0].abs().sum()


def spreads(P: Any, x: Any) -> Any:
    found = (P.var(x), P.std(x, -1), *P.var_mean(x, (0, 1), correction=0), *P.std_mean(x, 0, keepdim=True))
    return sum(t.abs().cos().sum() for t in found)


def exponential(P: Any, x: Any) -> Any:
    return P.linalg.matrix_exp(x).abs().sum()


PROGRAMS = [by_vectors, by_values, exponential]


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients(program: Callable[..., Any], name: str) -> None:
    check(program, MATRICES[name], compiled=name in ("real", "complex"))


@pytest.mark.parametrize("name", ["complex", "real batches"])
def test_spreads_of_complex_numbers(name: str) -> None:
    check(spreads, MATRICES[name] * (1 - 0.5j), compiled=name == "complex")


def check(program: Callable[..., Any], array: Any, compiled: bool) -> None:
    """A program of one matrix, its gradient, and the gradient's, eagerly and, if asked, compiled."""

    def twice(P: Any, x: Any) -> tuple[Any, ...]:
        value = program(P, x)
        (first,) = P.autograd.grad(value, x, create_graph=True)
        (second,) = P.autograd.grad((first.abs() ** 2).sum(), x)
        return value, first, second

    wanted = twice(torch, torch.tensor(array, requires_grad=True))

    def here(x: Any) -> tuple[Any, ...]:
        return twice(tracecomp, x)

    for run in (here, tracecomp.compile(here)) if compiled else (here,):
        found = run(tracecomp.tensor(array, requires_grad=True))
        for mine, theirs in zip(found, wanted, strict=True):
            theirs = theirs.detach().resolve_conj().numpy()
            assert mine.numpy(force=True).dtype == theirs.dtype
            scale = 1e-9 * max(1.0, float(np.abs(theirs).max()))
            np.testing.assert_allclose(mine.numpy(force=True), theirs, rtol=1e-9, atol=scale)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_they_are_eigenvectors(dtype: str) -> None:
    x = tracecomp.randn(3, 6, 6, dtype=getattr(tracecomp, dtype))
    values, vectors = tracecomp.compile(tracecomp.linalg.eig)(x)
    eager_values, eager_vectors = tracecomp.linalg.eig(x)
    assert values.equal(eager_values) and vectors.equal(eager_vectors)
    assert values.dtype is vectors.dtype is getattr(tracecomp, dtype).to_complex()
    close = 1e-10 if values.dtype is tracecomp.complex128 else 1e-3
    np.testing.assert_allclose(
        (x.to(values.dtype) @ vectors).numpy(), (vectors * values.unsqueeze(-2)).numpy(), atol=close
    )
    np.testing.assert_allclose((vectors.abs() ** 2).sum(-2).numpy(), 1.0, rtol=close)


def test_a_loss_that_depends_on_phases_is_refused() -> None:
    def loss(P: Any, x: Any) -> Any:
        return P.autograd.grad(P.linalg.eig(x)[1].imag.sum(), x)

    for run in (lambda x: loss(tracecomp, x), tracecomp.compile(lambda x: loss(tracecomp, x))):
        with pytest.raises(RuntimeError, match="specified up to multiplication"):
            run(tracecomp.tensor(MATRICES["complex"], requires_grad=True))
    with pytest.raises(RuntimeError, match="specified up to multiplication"):
        loss(torch, torch.tensor(MATRICES["complex"], requires_grad=True))


@pytest.mark.parametrize(
    "call",
    ["eig(T.ones(3))", "eigvals(T.ones(2, 3))", "eig(T.full((2, 2), float('nan')))", "eigvals(T.ones(2, 2).int())"],
)
def test_refusals(call: str) -> None:
    kinds = []
    for P in (tracecomp, torch):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            eval(f"T.linalg.{call}", {"T": P})
        kinds.append(caught.type)
    assert kinds[0] is kinds[1] or issubclass(kinds[0], NotImplementedError)
