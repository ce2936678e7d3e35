"""Sparse tensors give PyTorch's values, gradients, texts and errors, in every layout."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

reference = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
BOTH = (tracecomp, reference)
LAYOUTS = ("coo", "duplicates", "csr", "csc", "bsr", "bsc")


def matrix(seed: int, shape: tuple[int, ...] = (4, 6)) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * (rng.random(shape) < 0.4)).astype(np.float64)


def make(torch: Any, layout: str, seed: int = 0, shape: tuple[int, ...] = (4, 6)) -> Any:
    """The same sparse tensor here and there."""
    x = torch.tensor(matrix(seed, shape))
    if layout == "duplicates":
        rng = np.random.default_rng(seed + 100)
        places = np.stack([rng.integers(0, n, 12) for n in shape])
        return torch.sparse_coo_tensor(torch.tensor(places), torch.tensor(rng.normal(size=12)), shape)
    if layout in ("bsr", "bsc"):
        return getattr(x, f"to_sparse_{layout}")((2, 3))
    return x.to_sparse() if layout == "coo" else getattr(x, f"to_sparse_{layout}")()


def array(x: Any) -> Any:
    """All elements of a result."""
    if isinstance(x, list | tuple):
        return [array(y) for y in x]
    if not hasattr(x, "layout"):
        return x
    whole = x.to_dense() if str(x.layout) != "torch.strided" else x
    return whole.detach().numpy()


def same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


ANYWHERE: dict[str, Callable[[Any, Any], Any]] = {
    "dense": lambda t, s: s.to_dense(),
    "twice": lambda t, s: s * 2,
    "halves": lambda t, s: s / 2.0,
    "negative": lambda t, s: -s,
    "sine": lambda t, s: t.sin(s),
    "matrix": lambda t, s: s @ t.ones(6, 3, dtype=t.float64),
    "vector": lambda t, s: s @ t.arange(6.0, dtype=t.float64),
    "transposed": lambda t, s: s.t(),
    "coordinates": lambda t, s: s.to_sparse(),
    "float32": lambda t, s: s.to(t.float32).to_dense().double(),
    "copies": lambda t, s: [s.clone(), copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.detach()],
    "facts": lambda t, s: [s.dim(), s.numel(), tuple(s.shape), len(s), str(s.dtype), str(s.layout), s.requires_grad],
    "sum": lambda t, s: s.sum(),
    "linear": lambda t, s: t.nn.functional.linear(s, t.ones(3, 6, dtype=t.float64)),
}
COO: dict[str, Callable[[Any, Any], Any]] = {
    "plus itself": lambda t, s: s + s,
    "plus another": lambda t, s: s + make(t, "coo", 7),
    "minus another": lambda t, s: s - 2 * make(t, "duplicates", 8),
    "plus a part": lambda t, s: t.add(s, make(t, "coo", 7), alpha=3),
    "dense plus sparse": lambda t, s: t.ones(4, 6, dtype=t.float64) + s,
    "dense minus sparse": lambda t, s: t.ones(4, 6, dtype=t.float64) - s,
    "times another": lambda t, s: s * make(t, "coo", 7),
    "times dense": lambda t, s: s * t.arange(24.0, dtype=t.float64).reshape(4, 6),
    "coalesced": lambda t, s: [s.coalesce().indices(), s.coalesce().values()],
    "places": lambda t, s: [s._indices(), s._values(), s._nnz(), s.sparse_dim(), s.dense_dim()],
    "product of sparse": lambda t, s: t.sparse.mm(s, s.t()),
    "dense times sparse": lambda t, s: t.ones(3, 4, dtype=t.float64) @ s,
    "addmm": lambda t, s: t.sparse.addmm(t.ones(4, 2).double(), s, t.ones(6, 2).double(), beta=2.0, alpha=0.5),
    "sum of rows": lambda t, s: t.sparse.sum(s, 1),
    "sum of columns": lambda t, s: [t.sparse.sum(s, [0]), s.sum(0), t.sparse.sum(s, [0, 1]), t.sparse.sum(s)],
    "softmax": lambda t, s: [t.sparse.softmax(s.coalesce(), 1), t.sparse.log_softmax(s.coalesce(), 0)],
    "joined": lambda t, s: [t.cat([s, s]), t.cat([s, make(t, "coo", 3)], 1), t.stack([s, s])],
    "picked": lambda t, s: [s.index_select(1, t.tensor([5, 0, 0])), s.index_select(0, t.tensor([2]))],
    "rows": lambda t, s: [s[1], s[-1], s[1, 2], *s],
    "masked": lambda t, s: t.arange(24.0).double().reshape(4, 6).sparse_mask(s.coalesce()),
    "shapes": lambda t, s: [s.unsqueeze(0), s.unsqueeze(-1), s.permute(1, 0), s.T],
    "power": lambda t, s: [s.pow(2), s.abs().sqrt(), s.relu(), t.expm1(s)],
    "norm": lambda t, s: t.norm(s),
    "empty": lambda t, s: [t.zeros_like(s), t.zeros(2, 3, layout=t.sparse_coo), t.sparse_coo_tensor((2, 3))],
    "in place": lambda t, s: [s.clone().add_(s), s.clone().mul_(3), s.clone().zero_(), s.clone().copy_(s)],
    "dense in place": lambda t, s: t.ones(4, 6, dtype=t.float64).add_(s, alpha=2),
    "compressed": lambda t, s: [s.to_sparse_csr().crow_indices(), s.to_sparse_csr().col_indices(), s.to_sparse_csc()],
    "a batch": lambda t, s: t.bmm(t.stack([s, s]), t.ones(2, 6, 2, dtype=t.float64)),
    "hybrid": lambda t, s: t.eye(3).double().to_sparse(1) * 2,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ANYWHERE)
def test_functions_of_all_layouts(name: str, layout: str) -> None:
    ours = array(ANYWHERE[name](tracecomp, make(tracecomp, layout)))
    if name == "facts":
        assert ours == array(ANYWHERE[name](reference, make(reference, layout)))
    else:  # PyTorch has not all functions for all layouts
        same(ours, array(ANYWHERE[name](reference, make(reference, layout if layout == "duplicates" else "coo"))))


@pytest.mark.parametrize("layout", ["coo", "duplicates"])
@pytest.mark.parametrize("name", COO)
def test_functions_of_coordinates(name: str, layout: str) -> None:
    ours, theirs = (array(COO[name](t, make(t, layout))) for t in BOTH)
    same(ours, theirs)


DIFFERENTIATED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "product": lambda t, s, w: (t.sparse.mm(s, w) ** 2).sum(),
    "dense": lambda t, s, w: (s.to_dense() @ w).sin().sum(),
    "scaled": lambda t, s, w: t.sparse.mm(s * 3.0, w).sum(),
    "summed": lambda t, s, w: t.sparse.sum(s) * w.sum(),
    "added": lambda t, s, w: t.sparse.mm(s + s, w).pow(2).sum(),
    "transposed": lambda t, s, w: t.sparse.mm(s.t(), t.ones(4, 2, dtype=t.float64)).pow(2).sum() + w.sum(),
}


@pytest.mark.parametrize("layout", ["coo", "duplicates"])
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_of_values_and_of_what_is_dense(name: str, layout: str) -> None:
    found = []
    for t in BOTH:
        given = make(t, layout)
        values = given._values().clone().requires_grad_()
        w = t.tensor(matrix(5, (6, 2)), requires_grad=True)
        DIFFERENTIATED[name](t, t.sparse_coo_tensor(given._indices(), values, given.shape), w).backward()
        found.append([array(values.grad), array(w.grad)])
    same(found[0], found[1])


def test_a_sparse_leaf_has_a_sparse_gradient() -> None:
    found = []
    for t in BOTH:
        s = make(t, "coo").requires_grad_()
        t.sparse.mm(s, t.tensor(matrix(5, (6, 2)))).pow(2).sum().backward()
        assert s.grad.is_sparse and s.is_leaf
        found.append(array(s.grad))
    same(found[0], found[1])


def test_dense_tensors_learn_through_sparse_ones() -> None:
    found = []
    for t in BOTH:
        x = t.tensor(matrix(1), requires_grad=True)
        t.sparse.mm(x.to_sparse(), t.ones(6, 2, dtype=t.float64)).pow(2).sum().backward()
        assert x.grad is not None
        found.append(array(x.grad))
    same(found[0], found[1])


@pytest.mark.parametrize("padding", [None, 3])
def test_embeddings_with_sparse_gradients_train(padding: int | None) -> None:
    found = []
    for t in BOTH:
        weight = t.nn.Parameter(t.tensor(np.arange(12.0).reshape(6, 2)))
        given, logged = t.tensor([[1, 3, 1], [0, 3, 3]]), []
        optimizers = [t.optim.SGD([weight], 0.1, momentum=0.5), t.optim.SparseAdam([weight], lr=0.1)]
        for step in range(4):
            weight.grad = None
            for _ in range(2):  # gradients accumulate
                rows = t.nn.functional.embedding(given, weight, padding_idx=padding, sparse=True)
                (rows**2).sum().backward()
            assert weight.grad is not None and weight.grad.is_sparse
            logged.append(array(weight.grad.coalesce()))
            optimizers[step % 2].step()
            logged.append(weight.detach().numpy().copy())
        found.append(logged)
    same(found[0], found[1])


SHOWN: dict[str, Callable[[Any], Any]] = {
    "coordinates": lambda t: t.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)),
    "coordinates of other types": lambda t: t.sparse_coo_tensor([[0, 1]], t.tensor([3, 4], dtype=t.float64), (3,)),
    "nothing": lambda t: t.sparse_coo_tensor((2, 3)),
    "rows": lambda t: t.eye(3).to_sparse_csr(),
    "blocks": lambda t: t.eye(4).to_sparse_bsr((2, 2)),
    "columns": lambda t: t.ones(2, 2).to_sparse_csc().double(),
    "rows of vectors": lambda t: t.sparse_coo_tensor([[0, 1]], t.ones(2, 3), (4, 3)),
    "learning": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4,), requires_grad=True),
}


@pytest.mark.parametrize("name", SHOWN)
def test_texts(name: str) -> None:
    assert repr(SHOWN[name](tracecomp)) == repr(SHOWN[name](reference))


WRONG: dict[str, Callable[[Any], Any]] = {
    "a place below zero": lambda t: t.sparse_coo_tensor([[0, -1]], [1.0, 2.0]),
    "entries that differ": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    "dimensions that differ": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 3)),
    "values of others": lambda t: t.sparse_coo_tensor([[0, 1]], t.ones(2, 3), (4, 5)),
    "indices before coalesce": lambda t: make(t, "duplicates").indices(),
    "values before coalesce": lambda t: make(t, "duplicates").values(),
    "other sizes": lambda t: make(t, "coo") + make(t, "coo", shape=(6, 4)),
    "a product of other sizes": lambda t: t.sparse.mm(make(t, "coo"), t.ones(4, 2, dtype=t.float64)),
    "one number": lambda t: make(t, "coo").item(),
    "an array": lambda t: make(t, "coo").numpy(),
    "a view": lambda t: make(t, "coo").view(24),
    "a comparison": lambda t: make(t, "coo") > 1,
    "a cosine": lambda t: t.cos(make(t, "coo")),
    "rows of a column layout": lambda t: make(t, "csc").crow_indices(),
    "blocks that do not fit": lambda t: t.ones(4, 5).to_sparse_bsr((2, 2)),
    "an index too large": lambda t: make(t, "coo")[4],
    "dense gradients": lambda t: _step(t, t.optim.SparseAdam, sparse=False),
    "sparse gradients": lambda t: _step(t, t.optim.Adam, sparse=True),
}


def _step(torch: Any, kind: Any, sparse: bool) -> None:
    layer = torch.nn.Embedding(4, 2, sparse=sparse)
    layer(torch.tensor([1, 2])).sum().backward()
    kind(layer.parameters(), lr=0.1).step()


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_raises_what_pytorch_raises(name: str) -> None:
    kinds = []
    for t in BOTH:
        with pytest.raises((RuntimeError, IndexError, TypeError)) as caught:
            WRONG[name](t)
        kinds.append(type(caught.value))
    assert kinds[0] is kinds[1]


def test_places_outside_are_refused() -> None:
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        tracecomp.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))
    with pytest.raises(RuntimeError, match="nnz"):
        tracecomp.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0])


def test_scipy_takes_and_gives_the_parts() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    theirs = scipy.csr_matrix(matrix(2))
    ours = tracecomp.sparse_csr_tensor(theirs.indptr, theirs.indices, theirs.data, theirs.shape)
    same(array(ours), matrix(2))
    back = scipy.csr_matrix((ours.values().numpy(), ours.col_indices().numpy(), ours.crow_indices().numpy()), (4, 6))
    assert (back != theirs).nnz == 0
    vector = np.arange(6.0)
    same(array(ours @ tracecomp.tensor(vector)), theirs @ vector)


def test_diagonals_and_products_at_places() -> None:
    found = []
    for t in BOTH:
        diagonals = t.sparse.spdiags(t.arange(6.0).reshape(2, 3), t.tensor([0, -1]), (4, 3))
        places = t.eye(3).to_sparse_csr()
        products = t.sparse.sampled_addmm(places, t.arange(6.0).reshape(3, 2), t.arange(6.0).reshape(2, 3), beta=0.5)
        found.append([array(diagonals), array(products)])
    same(found[0], found[1])


def test_compiled_functions_take_make_and_capture_sparse_tensors() -> None:
    product: Any = tracecomp.compile(lambda s, x: (tracecomp.sparse.mm(s, x), s * 2))
    x = tracecomp.tensor(matrix(5, (6, 2)))
    for seed in range(4):  # other values, then places, then layouts, than those of the recorded call
        s = make(tracecomp, "coo", seed)
        dense, doubled = product(s, x)
        same(array(dense), matrix(seed) @ matrix(5, (6, 2)))
        same(array(doubled), matrix(seed) * 2)
    assert product.graphs
    dense, doubled = product(make(tracecomp, "csr", 9), x)
    same(array(dense), matrix(9) @ matrix(5, (6, 2)))
    assert doubled.is_sparse_csr


def test_compiled_functions_see_what_becomes_of_a_captured_sparse_tensor() -> None:
    s = make(tracecomp, "coo")
    x = tracecomp.ones(6, 1, dtype=tracecomp.float64)
    product: Any = tracecomp.compile(lambda x: s @ x)
    for _ in range(4):
        product(x)
    assert len(product.graphs) == 1
    s.mul_(3)
    same(array(product(x)), matrix(0).sum(1, keepdims=True) * 3)
    with pytest.raises(RuntimeError, match="keeps its places"):
        s.add_(make(tracecomp, "coo", 4))
    s = make(tracecomp, "coo", 4)
    same(array(product(x)), matrix(4).sum(1, keepdims=True))


def test_sparse_gradients_are_not_captured_silently() -> None:
    layer = tracecomp.nn.Embedding(4, 2, sparse=True)

    @tracecomp.compile
    def step(i: Any) -> Any:
        loss = layer(i).sum()
        loss.backward()
        return loss

    with pytest.raises(NotImplementedError, match="sparse layout"):
        step(tracecomp.tensor([1, 2]))
