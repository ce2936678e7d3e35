"""Sparse tensors give the results of PyTorch's, and of dense ones: values, places, gradients, errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
PAIR = (tracecomp, torch)

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse:UserWarning")

INDICES = [[0, 1, 1, 0, 3], [2, 0, 2, 2, 1]]
VALUES = [3.0, -4.0, 5.0, 1.0, 0.5]
DENSE = np.arange(6, dtype=np.float32).reshape(3, 2) - 2


def made(T: Any, kind: str = "coo", hybrid: bool = False, grad: bool = False) -> Any:
    values = T.tensor([[v, 2 * v] for v in VALUES] if hybrid else VALUES)
    shape = (4, 3, 2) if hybrid else (4, 3)
    x = T.sparse_coo_tensor(T.tensor(INDICES), values, shape)
    if kind == "coalesced":
        x = x.coalesce()
    elif kind != "coo":
        x = getattr(x, f"to_sparse_{kind}")()
    return x.requires_grad_() if grad else x


def plain(x: Any) -> Any:
    if isinstance(x, tracecomp.Tensor | torch.Tensor):
        dense = x.detach().to_dense() if str(x.layout) != "torch.strided" else x.detach()
        return np.asarray(dense.numpy())
    return x


def check(fn: Callable[[Any], Any]) -> None:
    own, its = fn(tracecomp), fn(torch)
    if isinstance(its, torch.Tensor):
        assert str(own.layout) == str(its.layout) and tuple(own.shape) == tuple(its.shape)
        assert str(own.dtype) == str(its.dtype)
    np.testing.assert_allclose(plain(own), plain(its), rtol=1e-6, atol=1e-6)


UNARY = ("abs", "neg", "sin", "tanh", "sqrt", "sign", "floor", "round", "expm1", "log1p", "relu", "isnan", "square")


@pytest.mark.parametrize("kind", ["coo", "coalesced", "csr", "csc"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_that_keep_zero(name: str, kind: str) -> None:
    if (name, kind) in (("square", "csr"), ("square", "csc"), ("relu", "csc")):
        pytest.skip("PyTorch has none for this layout")
    with np.errstate(invalid="ignore"):
        check(lambda T: getattr(T, name)(made(T, kind)))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "to_dense": lambda T, x: x.to_dense(), "sum": lambda T, x: x.sum(), "scaled": lambda T, x: x * 3 - x / 2,
    "added to itself": lambda T, x: x + x, "added to dense": lambda T, x: T.ones(4, 3) + x,
    "times dense": lambda T, x: x * T.arange(12).reshape(4, 3).float(),
    "mm": lambda T, x: T.sparse.mm(x, T.tensor(DENSE)), "@": lambda T, x: x @ T.tensor(DENSE),
    "mv": lambda T, x: x @ T.tensor(DENSE[:, 0]), "addmm": lambda T, x: T.sparse.addmm(
        T.ones(4, 2), x, T.tensor(DENSE), beta=0.5, alpha=2.0), "t": lambda T, x: x.t(),
    "double": lambda T, x: x.double(), "clone": lambda T, x: x.clone(),
    "product of sparse ones": lambda T, x: x @ x.t().to_dense().to_sparse() if x.layout is T.sparse_coo else x @ x.t(),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["coo", "coalesced", "csr"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_and_products(name: str, kind: str) -> None:
    if kind == "csr" and name in ("product of sparse ones", "scaled", "t"):
        pytest.skip("PyTorch has none for this layout, or another layout of the result")
    check(lambda T: OPERATIONS[name](T, made(T, kind)))


COO: dict[str, Callable[[Any, Any], Any]] = {
    "coalesce": lambda T, x: x.coalesce(), "indices": lambda T, x: x.coalesce().indices(),
    "values": lambda T, x: x.coalesce().values(), "transpose": lambda T, x: x.transpose(0, 1),
    "select": lambda T, x: x[1], "element": lambda T, x: x[0][2], "index_select": lambda T, x: T.index_select(
        x, 0, T.tensor([3, 0, 0])), "unsqueeze": lambda T, x: x.unsqueeze(1), "cat": lambda T, x: T.cat([x, x, x], 1),
    "stack": lambda T, x: T.stack([x, x * 2]), "sum 0": lambda T, x: T.sparse.sum(x, 0),
    "sum 1": lambda T, x: T.sparse.sum(x, dim=1), "sum 01": lambda T, x: T.sparse.sum(x, (0, 1)),
    "mul sparse": lambda T, x: x.coalesce() * x.t().t().coalesce(), "pow": lambda T, x: x**2,
    "softmax 1": lambda T, x: T.sparse.softmax(x, 1), "log_softmax 0": lambda T, x: T.sparse.log_softmax(x, 0),
    "dense minus": lambda T, x: T.ones(4, 3) - x, "dense @": lambda T, x: T.ones(2, 4) @ x, "minus dense": lambda T, x:
        x - T.ones(4, 3) if T is tracecomp else x.to_dense() - T.ones(4, 3), "linear": lambda T, x:
        T.nn.functional.linear(x, T.tensor(DENSE).t()), "copied": lambda T, x: x.clone().copy_(x * 2),
    "mask": lambda T, x: T.arange(12).reshape(4, 3).float().sparse_mask(x.coalesce()), "in place": lambda T, x:
        x.coalesce().mul_(2), "added in place": lambda T, x: T.ones(4, 3).add_(x, alpha=2),
    "zeros_like": lambda T, x: T.zeros_like(x), "norm": lambda T, x: x.coalesce().norm(), "empty": lambda T, x:
        T.sparse_coo_tensor((2, 3)), "narrow": lambda T, x: x.narrow_copy(0, 1, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", COO)
def test_coordinates(name: str) -> None:
    check(lambda T: COO[name](T, made(T)))


@pytest.mark.parametrize("name", ["to_dense", "coalesce", "values", "transpose", "sum 0", "sum 01", "select", "cat"])
def test_dense_dimensions_behind_sparse_ones(name: str) -> None:
    fn = {**OPERATIONS, **COO}[name]
    check(lambda T: fn(T, made(T, hybrid=True)))


def test_numbers_of_dimensions_and_stored_values() -> None:
    for hybrid in (False, True):
        own, its = (made(T, hybrid=hybrid) for T in PAIR)
        for name in ("sparse_dim", "dense_dim", "_nnz", "is_coalesced", "dim", "numel"):
            assert getattr(own, name)() == getattr(its, name)()
    assert made(tracecomp).is_sparse and not tracecomp.ones(2).is_sparse
    assert tracecomp.ones(2).sparse_dim() == torch.ones(2).sparse_dim() == 0


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "bsc"])
def test_compressed_layouts_store_what_pytorch_stores(kind: str) -> None:
    names = ("crow_indices", "col_indices") if kind in ("csr", "bsr") else ("ccol_indices", "row_indices")
    found = []
    for T in PAIR:
        dense = made(T).to_dense()[:, :2]
        block = ((2, 1),) if kind[0] == "b" else ()
        x = getattr(dense, f"to_sparse_{kind}")(*block)
        found.append([*(getattr(x, n)().tolist() for n in names), x.values().tolist(), x.to_dense().tolist()])
        again = getattr(T, f"sparse_{kind}_tensor")(*(getattr(x, n)() for n in names), x.values(), x.shape)
        assert T.equal(again.to_dense(), dense)
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["coalesced", "csr"])
def test_gradients_of_products(kind: str) -> None:
    grads = []
    for T in PAIR:
        x, d = made(T, kind, grad=True), T.tensor(DENSE, requires_grad=True)
        (T.sparse.mm(x, d) ** 2).sum().backward()
        assert str(x.grad.layout) == str(x.layout)
        grads.append([x.grad.to_dense().numpy(), d.grad.numpy()])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_gradients_through_values_and_conversions() -> None:
    grads = []
    for T in PAIR:
        values, dense = T.tensor(VALUES, requires_grad=True), T.tensor(DENSE, requires_grad=True)
        x = T.sparse_coo_tensor(T.tensor(INDICES), values, (4, 3))
        (x.to_dense() ** 2).sum().backward()
        (dense.to_sparse() * 3).to_dense().sum().backward()
        grads.append([values.grad.numpy(), dense.grad.numpy()])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b)


def test_sampled_products() -> None:
    a, b = np.random.RandomState(0).randn(2, 4, 5).astype(np.float32)
    check(lambda T: T.sparse.sampled_addmm(made(T, "csr"), T.tensor(a), T.tensor(b).t()[:, :3], beta=0.5, alpha=2.0))


def test_printing_is_pytorchs() -> None:
    for fn in (lambda T: made(T), lambda T: made(T).coalesce(), lambda T: made(T, "csr"), lambda T: made(T).double(),
               lambda T: made(T, "coalesced", grad=True), lambda T: made(T, hybrid=True)):  # fmt: skip
        assert repr(fn(tracecomp)) == repr(fn(torch))


@pytest.mark.parametrize("fn", [
    lambda T: T.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)),
    lambda T: T.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)),
    lambda T: T.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    lambda T: T.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)),
    lambda T: T.sparse_csr_tensor([0, 1, 2], [0, 9], [1.0, 2.0], (2, 2)), lambda T: made(T).indices(),
    lambda T: made(T).values(), lambda T: T.ones(2).coalesce(), lambda T: T.ones(2).crow_indices(),
    lambda T: made(T) @ T.ones(2, 2), lambda T: made(T) + T.sparse_coo_tensor((2, 2)), lambda T: made(T).numpy(),
    lambda T: made(T)[7], lambda T: T.cumsum(made(T), 0),
])  # fmt: skip
def test_bad_input_is_refused_as_by_pytorch(fn: Callable[[Any], Any]) -> None:
    errors = []
    for T in PAIR:
        with torch.sparse.check_sparse_tensor_invariants(), pytest.raises(Exception) as caught:
            fn(T)
        errors.append(caught.type)
    assert issubclass(errors[0], errors[1]) or issubclass(errors[1], errors[0]), errors


def test_nothing_reads_elements_that_are_not_there() -> None:
    x = made(tracecomp)
    for fn in (np.sum, np.sin, np.asarray, lambda v: v.tolist(), lambda v: np.add(v, 1)):
        with pytest.raises((TypeError, NotImplementedError)):
            fn(x)


def test_copies_and_pickles() -> None:
    for kind in ("coo", "csr"):
        x = made(tracecomp, kind)
        for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert again.layout is x.layout and tracecomp.equal(again.to_dense(), x.to_dense())


def test_matrices_of_scipy_go_both_ways() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    for kind in ("csr", "csc", "coo"):
        matrix = scipy.random(5, 4, 0.4, kind, np.float32, random_state=0)
        x = tracecomp.sparse.from_scipy(matrix)
        assert str(x.layout) == f"torch.sparse_{kind}"
        np.testing.assert_array_equal(tracecomp.sparse.to_scipy(x).toarray(), matrix.toarray())


@pytest.mark.parametrize("kind", ["coo", "coalesced", "csr"])
def test_a_function_of_sparse_tensors_can_be_compiled(kind: str) -> None:
    d = tracecomp.tensor(DENSE)
    compiled = tracecomp.compile(lambda x, d: (tracecomp.sparse.mm(x, d).relu() * 2, x * 3))
    for scale in (1.0, 2.0, 3.0):
        x = made(tracecomp, kind) * scale
        product, scaled = compiled(x, d)
        assert tracecomp.allclose(product, (x.to_dense() @ d).relu() * 2)
        assert scaled.layout is x.layout and tracecomp.equal(scaled.to_dense(), x.to_dense() * 3)
    other = tracecomp.sparse_coo_tensor([[0, 2], [1, 1]], [1.0, 5.0], (4, 3))
    other = other if kind == "coo" else other.coalesce() if kind == "coalesced" else other.to_sparse_csr()
    assert tracecomp.allclose(compiled(other, d)[0], (other.to_dense() @ d).relu() * 2)


def test_a_captured_sparse_matrix_is_what_it_is_at_each_call() -> None:
    class Graph:
        adjacency = made(tracecomp, "coalesced")

    compiled = tracecomp.compile(lambda d: Graph.adjacency @ d)
    d = tracecomp.tensor(DENSE)
    for scale in (1.0, 1.0, 2.0, 0.5):
        Graph.adjacency = made(tracecomp, "coalesced") * scale
        assert tracecomp.allclose(compiled(d), Graph.adjacency.to_dense() @ d)


def test_a_compiled_step_trains_the_values_of_a_sparse_matrix() -> None:
    values, d = tracecomp.tensor(VALUES, requires_grad=True), tracecomp.tensor(DENSE)
    eager = values.detach().clone().requires_grad_()

    def step(v: Any) -> Any:
        x = tracecomp.sparse_coo_tensor(tracecomp.tensor(INDICES), v, (4, 3))
        loss = ((x @ d) ** 2).mean()
        loss.backward()
        with tracecomp.no_grad():
            v -= 0.1 * v.grad
        v.grad = None
        return loss

    compiled = tracecomp.compile(step)
    for _ in range(4):
        assert tracecomp.allclose(compiled(values), step(eager))
    assert tracecomp.allclose(values, eager)


def test_what_is_written_into_a_captured_sparse_tensor_is_seen() -> None:
    x, d = made(tracecomp, "coalesced"), tracecomp.tensor(DENSE)
    compiled = tracecomp.compile(lambda d: x @ d)
    for _ in range(3):
        compiled(d)
    x.mul_(3)
    assert tracecomp.allclose(compiled(d), x.to_dense() @ d)
    with pytest.raises(NotImplementedError, match="sparsity pattern"):
        x.add_(tracecomp.sparse_coo_tensor([[3], [2]], [1.0], (4, 3)))


@pytest.mark.parametrize("kind", ["bsr", "bsc"])
def test_blocks_are_transposed(kind: str) -> None:
    dense = made(tracecomp).to_dense()
    x = getattr(dense, f"to_sparse_{kind}")((2, 1))
    assert tracecomp.equal(x.t().to_dense(), dense.t()) and x.t().layout is x.layout
