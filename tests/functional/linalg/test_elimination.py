"""LU, triangular systems and running extremes, compiled, at sizes that take several panels, strips or pieces."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import tracecomp

EPSILON = {"float32": 1e-4, "float64": 1e-11}


def compiled(fn: Any, *arrays: Any) -> tuple[Any, ...]:
    """The results of a native call."""
    call, tensors = tracecomp.compile(fn), [tracecomp.tensor(a) for a in arrays]
    for _ in range(3):
        found = call(*tensors)
    return tuple(t.numpy() for t in (found if isinstance(found, tuple) else (found,)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", list(EPSILON))
@pytest.mark.parametrize("shape", [(17, 17), (75, 40), (40, 75), (3, 20, 20)], ids=str)
def test_lu_gives_back_the_matrix(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    p, low, up = compiled(lambda t: tuple(tracecomp.linalg.lu(t)), x)
    np.testing.assert_allclose(p @ low @ up, x, atol=EPSILON[dtype])
    assert np.abs(low).max() <= 1 and (np.triu(up) == up).all() and (np.tril(low) == low).all()


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("shape", [(37, 7), (17, 40), (2, 20, 33)], ids=str)
def test_triangles_are_solved(shape: tuple[int, ...], left: bool, upper: bool) -> None:
    *lead, n, width = shape
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((*lead, n, n)) + 6 * np.eye(n), rng.standard_normal((*lead, n, width))
    b = b if left else np.swapaxes(b, -1, -2).copy()
    (x,) = compiled(lambda t, u: tracecomp.linalg.solve_triangular(t, u, upper=upper, left=left), a, b)
    triangle = np.triu(a) if upper else np.tril(a)
    np.testing.assert_allclose(triangle @ x if left else x @ triangle, b, atol=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", list(EPSILON))
@pytest.mark.parametrize("shape", [(1, 1), (17, 17), (75, 75), (3, 20, 20), (2, 0, 0), (0, 3, 3)], ids=str)
def test_systems_inverses_and_determinants(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(3)
    a = (0.1 * rng.standard_normal(shape) + np.eye(shape[-1])[rng.permutation(shape[-1])]).astype(dtype)
    b = rng.standard_normal((*shape[:-1], 5)).astype(dtype)
    linalg = tracecomp.linalg

    def run(t: Any, u: Any) -> tuple[Any, ...]:
        return linalg.solve(t, u), linalg.inv(t), linalg.det(t), *linalg.slogdet(t)

    solved, inverse, det, sign, log = compiled(run, a, b)
    np.testing.assert_allclose(a @ solved, b, atol=10 * EPSILON[dtype])
    np.testing.assert_allclose(a @ inverse, np.broadcast_to(np.eye(shape[-1]), shape), atol=10 * EPSILON[dtype])
    np.testing.assert_allclose(det, np.linalg.det(a.astype("float64")), rtol=10 * EPSILON[dtype])
    want = np.linalg.slogdet(a.astype("float64"))
    np.testing.assert_array_equal(sign, want[0])
    np.testing.assert_allclose(log, want[1], rtol=10 * EPSILON[dtype], atol=EPSILON[dtype])


def test_singular_matrices_are_refused_or_have_no_determinant() -> None:
    good = np.eye(20)[np.newaxis] + np.zeros((3, 1, 1))
    bad = good.copy()
    bad[1, 7] = bad[1, 6]
    cases = (
        (lambda t: tracecomp.linalg.solve(t, t), "linalg.solve: .*singular"),
        (tracecomp.linalg.inv, "linalg.inv: .*singular"),
    )
    for function, message in cases:
        call = tracecomp.compile(function)
        for _ in range(4):
            call(tracecomp.tensor(good))
        for fn in (function, call):
            with pytest.raises(tracecomp.linalg.LinAlgError, match=message):
                fn(tracecomp.tensor(bad))
        np.testing.assert_array_equal(call(tracecomp.tensor(good)).numpy(), good)
    det, sign, log = compiled(lambda t: (tracecomp.linalg.det(t), *tracecomp.linalg.slogdet(t)), bad)
    np.testing.assert_array_equal([det, sign, log], [[1, 0, 1], [1, 0, 1], [0, -np.inf, 0]])


def definite(*shape: int) -> Any:
    x = np.random.default_rng(4).standard_normal(shape)
    return x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", list(EPSILON))
@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (75, 75), (3, 40, 40), (2, 0, 0), (0, 3, 3)], ids=str)
def test_cholesky_reads_the_triangle_that_it_gives(shape: tuple[int, ...], dtype: str, upper: bool) -> None:
    a = definite(*shape)
    given = (a + (np.tril(np.ones(shape), -1) if upper else np.triu(np.ones(shape), 1))).astype(dtype)
    factor, info = compiled(lambda t: tuple(tracecomp.linalg.cholesky_ex(t, upper=upper)), given)
    exact = np.linalg.cholesky(a)
    np.testing.assert_allclose(factor, np.swapaxes(exact, -1, -2) if upper else exact, atol=EPSILON[dtype])
    assert info.shape == shape[:-2] and not info.any()


def test_what_is_not_definite_is_refused_with_its_order() -> None:
    good = definite(3, 40, 40)
    bad = good.copy()
    bad[1, 20, 20], bad[2, 5, 5] = -1, np.nan
    call = tracecomp.compile(tracecomp.linalg.cholesky)
    for _ in range(4):
        call(tracecomp.tensor(good))
    for fn in (tracecomp.linalg.cholesky, call):
        with pytest.raises(tracecomp.linalg.LinAlgError, match="leading minor of order 21 is not"):
            fn(tracecomp.tensor(bad))
    (orders,) = compiled(lambda t: tracecomp.linalg.cholesky_ex(t)[1], bad)
    assert orders.tolist() == tracecomp.linalg.cholesky_ex(tracecomp.tensor(bad))[1].tolist() == [0, 21, 6]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", list(EPSILON))
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 17), (75, 40), (40, 75), (3, 20, 33), (2, 3, 0), (0, 3, 3)], ids=str)
def test_qr_has_the_signs_of_lapack(shape: tuple[int, ...], mode: Literal["reduced", "complete"], dtype: str) -> None:
    x = np.random.default_rng(8).standard_normal(shape).astype(dtype)
    q, r = compiled(lambda t: tuple(tracecomp.linalg.qr(t, mode)), x)
    exact_q, exact_r = np.linalg.qr(x.astype(np.float64), mode=mode)
    np.testing.assert_allclose(q @ r, x, atol=EPSILON[dtype])
    unit = np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *q.shape[-1:] * 2))
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, unit, atol=EPSILON[dtype])
    wide = slice(min(shape[-2:])) if mode == "complete" else slice(None)
    np.testing.assert_allclose(q[..., wide], exact_q[..., wide], atol=50 * EPSILON[dtype])
    np.testing.assert_allclose(r, exact_r, atol=50 * EPSILON[dtype])
    assert (np.triu(r) == r).all()


@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-25, 1e25, 1e38])
def test_qr_of_numbers_whose_squares_are_no_floats(scale: float) -> None:
    x = (np.random.default_rng(9).uniform(-1, 1, (2, 20, 18)) * scale).astype(np.float32)
    q, r = compiled(lambda t: tuple(tracecomp.linalg.qr(t)), x)
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q, [np.eye(18)] * 2, atol=1e-5)
    np.testing.assert_allclose(q.astype(np.float64) @ r, x, atol=max(1e-5 * scale, 1e-44))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_products_with_reflections(left: bool, turn: bool) -> None:
    rng = np.random.default_rng(10)
    x, other = rng.standard_normal((2, 40, 37)), rng.standard_normal((2, 40, 9))
    other = other if left else np.swapaxes(other, -1, -2).copy()

    def run(t: Any, u: Any) -> Any:
        a, tau = tracecomp.geqrf(t)
        return tracecomp.ormqr(a, tau, u, left, turn), tracecomp.linalg.householder_product(a, tau)

    product, first = compiled(run, x, other)
    q = np.linalg.qr(x, mode="complete")[0]
    q[..., 37:] = compiled(lambda t: tracecomp.linalg.qr(t, "complete")[0], x)[0][..., 37:]
    np.testing.assert_allclose(first, q[..., :37], atol=1e-12)
    q = np.swapaxes(q, -1, -2) if turn else q
    np.testing.assert_allclose(product, q @ other if left else other @ q, atol=1e-12)


def test_reflections_that_do_not_fit_are_refused() -> None:
    a, tau = tracecomp.ones(2, 3, 3), tracecomp.ones(2, 3)
    with pytest.raises(RuntimeError, match="tau to have one dimension less"):
        tracecomp.ormqr(a, a, a)
    with pytest.raises(RuntimeError, match="other to have the same number of dimensions"):
        tracecomp.ormqr(a, tau, a[0])
    with pytest.raises(RuntimeError, match="batch dimensions of other"):
        tracecomp.ormqr(a, tau, a[:1])
    with pytest.raises(RuntimeError, match="batch dimensions of tau"):
        tracecomp.linalg.householder_product(a, tau[:1])
    with pytest.raises(RuntimeError, match="greater than or equal to tau"):
        tracecomp.linalg.householder_product(a[..., :2], tau)


def test_lu_without_columns() -> None:
    p, low, up = compiled(lambda t: tuple(tracecomp.linalg.lu(t)), np.zeros((2, 3, 0)))
    np.testing.assert_array_equal(p, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert low.shape == (2, 3, 0) and up.shape == (2, 0, 0)


def test_a_zero_on_the_diagonal_is_no_error() -> None:
    (x,) = compiled(lambda t, u: tracecomp.linalg.solve_triangular(t, u, upper=True), np.zeros((2, 2)), np.ones((2, 1)))
    assert not np.isfinite(x).any()


def test_swaps_outside_of_the_matrix_are_refused() -> None:
    lu, swaps = tracecomp.eye(3), tracecomp.tensor([1, 9, 3], dtype=tracecomp.int32)
    call = tracecomp.compile(lambda a, s: tracecomp.lu_unpack(a, s)[0])
    good = tracecomp.tensor([1, 2, 3], dtype=tracecomp.int32)
    for _ in range(3):
        call(lu, good)
    for fn in (lambda a, s: tracecomp.lu_unpack(a, s)[0], call):
        with pytest.raises(IndexError):
            fn(lu, swaps)


@pytest.mark.parametrize("shape", [(70,), (3, 100)], ids=str)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_of_long_rows(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).integers(-9, 9, shape).astype(np.float32)
    x[..., 60] = np.nan
    better = np.greater_equal if name == "cummax" else np.less_equal
    values, places = compiled(lambda t: tuple(getattr(tracecomp, name)(t, -1)), x)
    best, at = x[..., 0].copy(), np.zeros(shape[:-1], np.int64)
    for k in range(shape[-1]):
        take = np.isnan(x[..., k]) | (~np.isnan(best) & better(x[..., k], best))
        best, at = np.where(take, x[..., k], best), np.where(take, k, at)
        np.testing.assert_array_equal(values[..., k], best)
        np.testing.assert_array_equal(places[..., k], at)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_a_factor_goes_as_far_as_the_matrix_is_positive_definite(kind: str, upper: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    a = rng.standard_normal((12, 5, 5)) + (1j * rng.standard_normal((12, 5, 5)) if kind == "complex128" else 0)
    a = a @ a.swapaxes(-1, -2).conj()
    for i in range(12):
        a[i, i % 5, i % 5] -= 9 * (i % 3)
    given = a.astype(kind)
    wanted = torch.linalg.cholesky_ex(torch.tensor(given), upper=upper)
    factor, info = tracecomp.linalg.cholesky_ex(tracecomp.tensor(given), upper=upper)
    assert info.tolist() == wanted.info.tolist() and len(set(info.tolist())) > 3
    np.testing.assert_allclose(factor.numpy(), wanted.L.numpy(), rtol=1e-3, atol=1e-4)
