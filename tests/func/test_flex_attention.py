"""``flex_attention`` compared with PyTorch and with plain attention."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")
ours: Any = importlib.import_module("tracecomp.nn.attention.flex_attention")
theirs: Any = importlib.import_module("torch.nn.attention.flex_attention")


def tensors(t: Any, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [t.tensor(rng.normal(size=shape).astype("float32")) for shape in shapes]


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i > j


def result(t: Any, flex: Any) -> tuple[Any, Any, Any]:
    query, key, value, bias, rows, columns = tensors(
        t, (2, 4, 10, 8), (2, 2, 12, 8), (2, 2, 12, 6), (4,), (10, 3), (12, 3)
    )

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + bias[h] * (i - j) + (rows[i] * columns[j]).sum()

    mask = flex.create_block_mask(causal, None, None, 10, 12, device="cpu", BLOCK_SIZE=4)
    out, lse = flex.flex_attention(query, key, value, score, mask, enable_gqa=True, return_lse=True)
    return out, lse, mask


@pytest.mark.filterwarnings("ignore")
def test_scores_and_masks_are_functions_of_single_positions() -> None:
    (out, lse, mask), (expected, lse_expected, mask_expected) = result(tc, ours), result(torch, theirs)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse.numpy(), lse_expected.numpy(), rtol=1e-5)
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
        assert getattr(mask, name).tolist() == getattr(mask_expected, name).tolist(), name
    assert mask.shape == tuple(mask_expected.shape) and mask.sparsity() == pytest.approx(mask_expected.sparsity())
    assert mask.to_dense().tolist() == mask_expected.to_dense().tolist()
    assert mask[:, :, 1:2].kv_indices.tolist() == mask_expected[:, :, 1:2].kv_indices.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_plain_attention(compiled: bool) -> None:
    inputs = [x.requires_grad_() for x in tensors(tc, (1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 3))]
    mask = ours.create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5)

    def flex(q: Any, k: Any, v: Any) -> Any:
        return ours.flex_attention(q, k, v, block_mask=mask)

    call = tc.compile(flex) if compiled else flex
    for _ in range(3):
        found = tc.autograd.grad(call(*inputs).square().sum(), inputs)
    plain = tc.nn.functional.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], is_causal=True)
    for a, b in zip(found, tc.autograd.grad(plain.square().sum(), inputs), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_masks_of_masks() -> None:
    def even(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i + j) % 2 == 0

    for name in ("and_masks", "or_masks"):
        found, expected = (
            flex.create_mask(getattr(flex, name)(causal, even), 1, 1, 4, 4, device="cpu") for flex in (ours, theirs)
        )
        assert found.tolist() == expected.tolist()


def test_what_is_refused() -> None:
    for t, flex in ((tc, ours), (torch, theirs)):
        query, key, value = tensors(t, (1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8))
        with pytest.raises(ValueError, match="enable_gqa"):
            flex.flex_attention(query, key, value)
        with pytest.raises(ValueError, match="block_mask was created for"):
            mask = flex.create_block_mask(causal, None, None, 9, 6, device="cpu")
            flex.flex_attention(query[:, :2], key, value, block_mask=mask)
        with pytest.raises(NotImplementedError):
            flex.flex_attention(query[0], key, value)
        with pytest.raises(RuntimeError):
            flex.and_masks(causal, 3)
