"""Sizes that no memory holds: the error is PyTorch's RuntimeError, not numpy's, and nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

HUGE = 2**62
WIDE = 2**40


def _interpolated(mode: str, x: Any) -> Any:
    return F.interpolate(x[None, None], size=2**30, mode=mode)


CALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: torch.zeros(HUGE),
    "ones": lambda x: torch.ones(WIDE, WIDE),
    "full": lambda x: torch.full((HUGE,), 1.0),
    "rand": lambda x: torch.rand(HUGE),
    "randn": lambda x: torch.randn(WIDE, WIDE),
    "negative": lambda x: torch.zeros(-1),
    "arange": lambda x: torch.arange(HUGE),
    "arange of floats": lambda x: torch.arange(0, 1e30),
    "randperm": lambda x: torch.randperm(HUGE),
    "expand": lambda x: x[:1].expand(HUGE, 4),
    "repeat": lambda x: x.repeat(WIDE, WIDE),
    "tile": lambda x: x.tile((HUGE, 1)),
    "pad": lambda x: F.pad(x, (0, HUGE)),
    "repeat_interleave": lambda x: x.repeat_interleave(HUGE),
    "as_strided": lambda x: x.as_strided((HUGE, HUGE), (0, 0)),
    "one_hot": lambda x: F.one_hot(torch.tensor([0]), HUGE),
    "view": lambda x: x.view(HUGE),
    "zeros of bytes": lambda x: torch.zeros(WIDE),
    "empty_like": lambda x: torch.empty_like(x[:1, :1].expand(WIDE, 1)),
    "empty_strided": lambda x: torch.empty_strided((2,), (HUGE,)),
    "empty_permuted": lambda x: torch.empty_permuted((2**31, 2**31), (1, 0)),
    "linspace": lambda x: torch.linspace(0, 1, HUGE),
    "logspace": lambda x: torch.logspace(0, 1, WIDE),
    "eye": lambda x: torch.eye(2**31, 2**31),
    "tril_indices": lambda x: torch.tril_indices(HUGE, HUGE),
    "triu_indices": lambda x: torch.triu_indices(2**31, 2**31),
    "bincount": lambda x: torch.bincount(torch.tensor([WIDE])),
    "minlength": lambda x: torch.bincount(torch.tensor([1]), minlength=HUGE),
    "classes of one_hot": lambda x: F.one_hot(torch.tensor([WIDE])),
    "combinations": lambda x: torch.combinations(torch.arange(200), 20),
    "tensor_split": lambda x: x.tensor_split(WIDE),
    "resize_": lambda x: x.resize_(WIDE),
    "IntTensor": lambda x: torch.IntTensor(WIDE),  # type: ignore[call-arg]
    "UntypedStorage": lambda x: torch.UntypedStorage(HUGE),
    "Embedding": lambda x: torch.nn.Embedding(WIDE, 100),
    "vander": lambda x: torch.vander(x[0], N=WIDE),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[None], HUGE),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], (2**20, 2**24)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None], 2**30),
    "conv1d": lambda x: F.conv1d(x, torch.ones(1, 3, 2), padding=WIDE),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x, torch.ones(3, 1, 2), stride=WIDE),
    "affine_grid": lambda x: F.affine_grid(torch.ones(1, 2, 3), (1, 1, 2**30, 2**30)),
    **{f"interpolate {mode}": partial(_interpolated, mode) for mode in ("nearest", "area", "bilinear", "bicubic")},
    "outer": lambda x: torch.outer(torch.zeros(1).expand(2**30), torch.zeros(1).expand(2**30)),
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes_beyond_memory_are_runtime_errors(name: str) -> None:
    with pytest.raises(RuntimeError):
        CALLS[name](torch.ones(3, 4))


def test_sizes_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(TypeError, match="'size' must be tuple of ints; at pos 2, an integer must fit 64 bits"):
        torch.zeros(3, 2**63)
    assert torch.arange(4)[1 : 2**63].tolist() == [1, 2, 3]


@pytest.mark.parametrize("offset", range(-5, 6))
@pytest.mark.parametrize(("row", "col"), [(0, 3), (3, 0), (3, 4), (4, 3), (4, 4), (1, 1)])
def test_triangles_have_the_indices_of_their_masks(row: int, col: int, offset: int) -> None:
    lower = torch.ones(row, col).tril(offset).nonzero().T
    assert torch.equal(torch.tril_indices(row, col, offset), lower)
    assert torch.equal(torch.triu_indices(row, col, offset), torch.ones(row, col).triu(offset).nonzero().T)


def test_powers_of_infinity_begin_with_one() -> None:
    inf = torch.inf
    assert torch.linalg.vander(torch.tensor([inf, 0.0, -2.0]), N=4).tolist() == [
        [1, inf, inf, inf],
        [1, 0, 0, 0],
        [1, -2, 4, -8],
    ]
