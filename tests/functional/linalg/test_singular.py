"""The ``_ex`` forms of matrices, some of them singular, compared with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch

reference = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
REGULAR = RNG.standard_normal((2, 3, 3))
EQUAL_ROWS = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 5.0], [1.0, 2.0, 3.0]])
MATRICES = np.stack([REGULAR[0], EQUAL_ROWS, np.zeros((3, 3)), REGULAR[1]])

CALLS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "inverse": (lambda t, a, b: t.linalg.inv_ex(a), (1,)),
    "matrices": (lambda t, a, b: t.linalg.solve_ex(a, b), (4, 3, 2)),
    "more batches": (lambda t, a, b: t.linalg.solve_ex(a, b), (2, 4, 3, 2)),
    "vectors": (lambda t, a, b: t.linalg.solve_ex(a, b), (4, 3)),
    "one vector": (lambda t, a, b: t.linalg.solve_ex(a, b), (3,)),
    "from the right": (lambda t, a, b: t.linalg.solve_ex(a, b, left=False), (4, 2, 3)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_info_is_pytorchs_and_regular_matrices_are_solved(name: str, dtype: str, way: str) -> None:
    call, shape = CALLS[name]
    rhs = RNG.standard_normal(shape)
    want = call(reference, *(reference.tensor(x, dtype=getattr(reference, dtype)) for x in (MATRICES, rhs)))
    given = [torch.tensor(x, dtype=getattr(torch, dtype)) for x in (MATRICES, rhs)]
    run = torch.compile(lambda a, b: call(torch, a, b)) if way == "compiled" else lambda a, b: call(torch, a, b)
    for _ in range(2):
        found, info = run(*given)
    assert info.tolist() == want.info.tolist() == [0, 3, 1, 0] and info.dtype is torch.int32
    theirs = want[0].resolve_conj().numpy()
    for k in (0, 3):
        at: Any = (..., k, slice(None), slice(None)) if len(theirs.shape) > 2 else k
        assert np.allclose(found.numpy()[at], theirs[at], rtol=2e-4, atol=1e-5)
    assert np.isnan(found.numpy()).any() and not np.isnan(found.detach().numpy()).all()


def test_gradients_reach_regular_matrices_alone() -> None:
    a = torch.tensor(MATRICES, requires_grad=True)
    inverse, info = torch.linalg.inv_ex(a)
    torch.where((info == 0)[:, None, None], inverse, 0).sum().backward()
    expected = [-np.linalg.inv(m).T @ np.ones((3, 3)) @ np.linalg.inv(m).T for m in REGULAR]
    assert a.grad is not None
    assert np.allclose(a.grad[0], expected[0]) and np.allclose(a.grad[3], expected[1])
    assert not a.grad[1:3].any()


def test_errors_are_raised_on_request() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv_ex(torch.zeros(2, 2), check_errors=True)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.solve_ex(torch.zeros(2, 2), torch.ones(2), check_errors=True)


def broken(t: Any, dtype: str, single: bool) -> Any:
    """Twenty by twenty, three of them: the second and the third are singular."""
    x = t.eye(20, dtype=getattr(t, dtype)).repeat(3, 1, 1)
    x[1, 7] = 0
    x[2, 1] = 0
    return x[1] if single else x


REFUSING: dict[str, Any] = {
    "inv": lambda t, x: t.linalg.inv(x),
    "solve": lambda t, x: t.linalg.solve(x, x),
    "cholesky": lambda t, x: t.linalg.cholesky(x),
    "lu_factor": lambda t, x: t.linalg.lu_factor(x)[0],
}


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("single", [True, False])
def test_errors_name_the_matrix_and_the_element(name: str, dtype: str, single: bool) -> None:
    """In PyTorch's words, eagerly and compiled."""
    with pytest.raises(RuntimeError) as theirs:
        REFUSING[name](reference, broken(reference, dtype, single))
    run = torch.compile(lambda x: REFUSING[name](torch, x))
    x = broken(torch, dtype, single)
    run(x + torch.eye(20))
    for call in (run, lambda x: REFUSING[name](torch, x)):
        with pytest.raises(RuntimeError) as ours:
            call(x)
        assert str(ours.value) == str(theirs.value)
        assert type(ours.value).__name__ == type(theirs.value).__name__.lstrip("_")


def test_of_large_batches_and_matrices_one_number_is_told() -> None:
    x = torch.eye(1, dtype=torch.float64).repeat(9000, 1, 1)
    x[8500] = 0
    for call in (torch.linalg.inv, torch.compile(torch.linalg.inv)):
        with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.inv: The diagonal element 1 is zero"):
            call(x)
