"""Memory shared with numpy that one call writes and restores: a tensor has the elements at the time of its read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

SHARED = np.arange(4, dtype=np.float32)
SEEN = torch.from_numpy(SHARED)


def _by_out(x: Any) -> Any:
    np.add(SHARED, 1, out=SHARED)
    y = SEEN * x
    np.subtract(SHARED, 1, out=SHARED)
    return y + SEEN


def _from_a_copy(x: Any) -> Any:
    before = SHARED.copy()
    np.add(SHARED, 1, out=SHARED)
    y = SEEN * x
    SHARED[:] = before
    return y + SEEN


def _of_an_argument(x: Any) -> Any:
    array = x.numpy()
    np.add(array, 1, out=array)
    y = x * 2
    np.subtract(array, 1, out=array)
    return y + x


def _by_memoryview(x: Any) -> Any:
    view: Any = SHARED.data
    before, view[0] = view[0], 9.0
    y = SEEN * x
    view[0] = before
    return y


def _sorted(x: Any) -> Any:
    SHARED[::-1].sort()
    y = SEEN * x
    SHARED.sort()
    return y


def _by_copyto(x: Any) -> Any:
    np.copyto(SHARED, SHARED + 1)
    y = SEEN * x
    np.copyto(SHARED, SHARED - 1)
    return y


def _by_tensor(x: Any) -> Any:
    SEEN.add_(1)
    y = float(SHARED.sum()) * x
    SEEN.sub_(1)
    return y


def _kept(x: Any) -> Any:
    np.add(SHARED, 1, out=SHARED)
    return SEEN * x


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize(
    "fn", [_by_out, _from_a_copy, _of_an_argument, _by_memoryview, _sorted, _by_copyto, _by_tensor, _kept]
)
def test_each_read_sees_its_moment(fn: Callable[[Any], Any]) -> None:
    def seen(run: Callable[[Any], Any], k: int) -> Any:
        SHARED[:] = np.arange(4) + k
        x = torch.ones(4) * (k + 1)
        return run(x).tolist(), x.tolist(), SHARED.tolist()

    compiled = torch.compile(fn)
    for k in range(4):
        assert seen(compiled, k) == seen(fn, k)
