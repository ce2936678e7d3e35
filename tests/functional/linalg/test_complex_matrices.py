"""Linear algebra of complex matrices: bits, memory, errors. Values: torch's samples and tests/ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.codegen.running import same_bits

L = tracecomp.linalg


def hermitian(x: Any) -> Any:
    return x @ x.mH + 9 * tracecomp.eye(x.shape[-1], dtype=x.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a: L.cholesky(hermitian(a)),
    "cholesky upper": lambda a: L.cholesky(hermitian(a), upper=True),
    "inv": L.inv,
    "solve": lambda a: L.solve(a, a.mH),
    "solve_triangular": lambda a: L.solve_triangular(a, a.mT, upper=True),
    "det": L.det,
    "slogdet": L.slogdet,
    "lu": L.lu,
    "qr": L.qr,
    "householder_product": lambda a: L.householder_product(a, a[..., 0]),
    "eigh": lambda a: L.eigh(hermitian(a)),
    "svd": L.svd,
    "svdvals": L.svdvals,
    "pinv": L.pinv,
    "ldl": lambda a: L.ldl_factor(hermitian(a), hermitian=True),
}
EACH = pytest.mark.parametrize("name", FUNCTIONS)


def numbers(*shape: int, dtype: str = "complex128") -> Any:
    rng = np.random.default_rng(5)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) + 3 * np.eye(shape[-1])).astype(dtype)


def arrays(result: Any) -> list[Any]:
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


def loss(result: Any) -> Any:
    """Sum absolute values, which do not depend on the phase of a vector."""
    return sum(t.abs().sum() for t in (result if isinstance(result, tuple) else (result,)) if t.dtype.is_complex)


@pytest.mark.sampled(2)
@EACH
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_programs_and_eager_calls_have_the_same_bits(name: str, dtype: str) -> None:
    given = tracecomp.tensor(numbers(3, 5, 5, dtype=dtype)).mT
    compiled = tracecomp.compile(lambda a: FUNCTIONS[name](a * 1.0), fullgraph=True)
    for _ in range(3):
        got = compiled(given)
    for a, b in zip(arrays(got), arrays(FUNCTIONS[name](given * 1.0)), strict=True):
        assert same_bits(a, b)


@EACH
def test_strides_and_neighbours_change_no_bit(name: str) -> None:
    x = numbers(7, 5, 5)
    together, turned = tracecomp.tensor(x), tracecomp.tensor(np.swapaxes(x, -1, -2).copy()).mT
    for i in range(len(x)):
        alone = arrays(FUNCTIONS[name](tracecomp.tensor(x[i])))
        for a, b, c in zip(alone, arrays(FUNCTIONS[name](together)), arrays(FUNCTIONS[name](turned)), strict=True):
            assert same_bits(a, b[i]) and same_bits(b, c)


@pytest.mark.sampled(10)
@EACH
def test_gradients_of_programs_are_those_of_eager_calls(name: str) -> None:
    if name in ("lu", "svdvals", "ldl"):
        pytest.skip("not of complex results, or not differentiable")

    def step(a: Any) -> Any:
        a = a.detach().requires_grad_(True)
        loss(FUNCTIONS[name](a)).backward()
        return a.grad

    given, compiled = tracecomp.tensor(numbers(2, 4, 4)), tracecomp.compile(step, fullgraph=True)
    for _ in range(3):
        got = compiled(given)
    np.testing.assert_allclose(got.numpy(), step(given).numpy(), rtol=1e-11, atol=1e-11)


def test_a_program_says_which_operators_the_host_runs() -> None:
    compiled = tracecomp.compile(lambda a: L.inv(a) * 2)
    for _ in range(3):
        compiled(tracecomp.tensor(numbers(3, 3)))
    assert "matrix_inverse" in str(tracecomp.explain(compiled))


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: L.cholesky(tracecomp.tensor([[1 + 0j, 0], [0, -1]])), L.LinAlgError, "leading minor of order 2"),
        (lambda: L.inv(tracecomp.zeros(2, 2, dtype=tracecomp.cfloat)), L.LinAlgError, "singular"),
        (lambda: L.solve(tracecomp.eye(2, dtype=tracecomp.cfloat), tracecomp.eye(2)), RuntimeError, "same dtype"),
        (lambda: L.eigh(tracecomp.ones(2, 3, dtype=tracecomp.cfloat)), RuntimeError, "square"),
        (lambda: L.svd(tracecomp.ones(3, dtype=tracecomp.cfloat)), RuntimeError, "at least 2 dimensions"),
        (lambda: L.svd(tracecomp.full((2, 2), float("nan")) * 1j), L.LinAlgError, "non-finite values"),
        (lambda: L.svdvals(tracecomp.full((2, 2), float("nan"))), L.LinAlgError, "non-finite values"),
        (lambda: L.norm(tracecomp.ones(2) * 1j, dtype=tracecomp.double), RuntimeError, "dtype should be complex"),
        (lambda: L.matrix_norm(tracecomp.ones(2, 2), dtype=tracecomp.cdouble), RuntimeError, "dtype should be real"),
        (lambda: L.householder_product(tracecomp.ones(2, 3), tracecomp.ones(2)), RuntimeError, "greater than or equal"),
        (lambda: L.lstsq(tracecomp.ones(2, 2) * 1j, tracecomp.ones(2, 2)), RuntimeError, "same dtype"),
        (lambda: L.lu_factor_ex(tracecomp.zeros(2, 2), check_errors=True), RuntimeError, r"U\[1,1\] is zero"),
    ],
)
def test_bad_inputs_are_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name, vectors", [("eigh", 1), ("svd", 0), ("svd", 2)])
def test_losses_by_the_phase_of_vectors_have_no_gradient(name: str, vectors: int, compiled: bool) -> None:
    def step(a: Any) -> Any:
        a = a.detach().requires_grad_(True)
        getattr(L, name)(hermitian(a))[vectors].real.sum().backward()
        return a.grad

    call = tracecomp.compile(step) if compiled else step
    for _ in range(3):
        with pytest.raises(RuntimeError, match="specified up to multiplication by"):
            call(tracecomp.tensor(numbers(3, 3)))


@pytest.mark.parametrize("dtype", [tracecomp.double, tracecomp.cdouble])
def test_infos_of_lu_name_the_first_zero_pivot(dtype: Any) -> None:
    x = tracecomp.eye(3, dtype=dtype).repeat(3, 1, 1)
    x[1, 1, 1] = 0
    x[2] = 0
    for call in (L.lu_factor_ex, tracecomp.compile(L.lu_factor_ex)):
        for _ in range(2):
            assert call(x).info.tolist() == [0, 2, 1]
    assert L.lu_factor_ex(x[0]).info.item() == 0 and L.lu_factor_ex(x[:0]).info.shape == (0,)


def test_singular_matrices_of_programs_are_errors_too() -> None:
    compiled = tracecomp.compile(L.inv)
    for _ in range(2):
        compiled(tracecomp.eye(2, dtype=tracecomp.cfloat))
    with pytest.raises(L.LinAlgError, match="singular"):
        compiled(tracecomp.zeros(2, 2, dtype=tracecomp.cfloat))
