"""Embeddings with sparse gradients, and the optimizers that take them, compared with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy

torch = pytest.importorskip("torch")
PAIR = (tracecomp, torch)

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse:UserWarning")

WEIGHT = np.random.RandomState(0).randn(6, 3).astype(np.float32)


def table(T: Any, **options: Any) -> Any:
    layer = T.nn.Embedding(6, 3, sparse=True, **options)
    with T.no_grad():
        layer.weight.copy_(T.tensor(WEIGHT))
    return layer


def test_the_gradient_of_a_sparse_embedding_is_sparse_and_adds_up() -> None:
    found = []
    for T in PAIR:
        layer, index = table(T), T.tensor([[1, 3], [1, 5]])
        for _ in range(2):
            (layer(index) ** 2).sum().backward()
        assert layer.weight.grad.is_sparse
        found.append(layer.weight.grad.to_dense().numpy())
        layer.weight.sum().backward()  # a dense one comes to it
        assert not layer.weight.grad.is_sparse
        found.append(layer.weight.grad.numpy())
        T.optim.SGD(layer.parameters(), 0.1).zero_grad()
        assert layer.weight.grad is None
    np.testing.assert_allclose(found[0], found[2], rtol=1e-6)
    np.testing.assert_allclose(found[1], found[3], rtol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "SparseAdam"])
def test_optimizers_move_the_rows_that_were_read(name: str) -> None:
    found = []
    for T in PAIR:
        layer = table(T, padding_idx=5)
        optimizer = getattr(T.optim, name)(layer.parameters(), lr=0.1)
        for k in range(4):
            optimizer.zero_grad()
            (layer(T.tensor([k, 2, 5, 2])) ** 2).sum().backward()
            optimizer.step()
        found.append(layer.weight.detach().numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), [("Adam", {}), ("RMSprop", {}), ("SGD", {"momentum": 0.9})])
def test_other_optimizers_refuse_sparse_gradients(name: str, options: dict[str, Any]) -> None:
    layer = table(tracecomp)
    layer(tracecomp.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse gradients"):
        getattr(tracecomp.optim, name)(layer.parameters(), lr=0.1, **options).step()
    layer.weight.grad = tracecomp.ones(6, 3)
    with pytest.raises(RuntimeError, match="dense gradients"):
        tracecomp.optim.SparseAdam(layer.parameters()).step()


def test_gradients_through_operators_before_the_embedding_are_dense() -> None:
    for T in PAIR:
        weight = T.tensor(WEIGHT, requires_grad=True)
        out = T.nn.functional.embedding(T.tensor([1, 1]), weight * 2, sparse=True) if T is tracecomp else None
        if out is not None:
            out.sum().backward()
            assert weight.grad.tolist()[1] == [4.0, 4.0, 4.0] and not weight.grad.is_sparse


@pytest.mark.parametrize("name", ["SGD", "SparseAdam"])
def test_a_compiled_step_with_sparse_gradients_is_the_eager_one(name: str) -> None:
    layers = [table(tracecomp), table(tracecomp)]
    steps = []
    for layer in layers:
        optimizer = getattr(tracecomp.optim, name)(layer.parameters(), lr=0.1)

        def step(index: Any, layer: Any = layer, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (layer(index) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        steps.append(step)
    compiled = tracecomp.compile(steps[1])
    for k in range(5):
        index = tracecomp.tensor([k, 2, 5, 2])
        assert tracecomp.allclose(compiled(index), by_numpy(steps[0])(index))
    assert tracecomp.allclose(layers[0].weight, layers[1].weight, rtol=1e-5, atol=1e-6)
