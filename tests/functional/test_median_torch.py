"""``median()`` and ``nanmedian()``: elements that are equal to the result share its gradient, as in PyTorch."""

from __future__ import annotations

from math import inf, nan

import pytest

import tracecomp

torch = pytest.importorskip("torch")

CASES = (
    [1.0, 2, 2, 3], [2.0, 2, 2], [3.0], [1.0, nan, nan], [nan, 1.0, 1.0, 5.0], [nan, nan], [inf, inf, 1.0],
    [-inf, -inf, 1.0], [0.0, 0.0, 0.0, 1.0], [0.1, 0.1, 0.1, 0.7, 0.9],
)  # fmt: skip


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_equal_elements_share_the_gradient(name: str) -> None:
    for data in CASES:
        found = []
        for library in (torch, tracecomp):
            x = library.tensor(data, requires_grad=True)
            result = getattr(x, name)()
            result.backward()
            found.append(str((result.item(), x.grad.tolist())))
        assert found[0] == found[1], data


def test_compiled_calls_share_it_too() -> None:
    compiled = tracecomp.compile(lambda x: x.median())
    for _ in range(3):
        x = tracecomp.tensor([1.0, 2, 2, 3], requires_grad=True)
        compiled(x).backward()
        assert x.grad is not None and x.grad.tolist() == [0.0, 0.5, 0.5, 0.0]
