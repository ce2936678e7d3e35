"""Memory of large results is reused once it is not referenced, and only then."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.runtime.result_pool import KEPT_BYTES, Spare, kept_outputs

SIZE = 100_000
LOOKS: dict[str, Callable[[tc.Tensor], Any]] = {
    "tensor": lambda t: t, "view": lambda t: t[1:], "detached": lambda t: t.detach(), "numpy": lambda t: t.numpy(),
    "row of numpy": lambda t: t.numpy()[::2], "buffer": lambda t: memoryview(t.numpy()),  # type: ignore[arg-type]
}  # fmt: skip


def adding(nested: bool) -> Callable[[tc.Tensor, tc.Tensor], tc.Tensor]:
    """A compiled addition: called natively, or (nested arguments) through Python."""
    if not nested:
        return tc.compile(lambda x, y: x + y)
    c = tc.compile(lambda pair: pair[0] + pair[1])
    return lambda x, y: c([x, y])


def address(t: tc.Tensor) -> int:
    return int(t.numpy().ctypes.data)


@pytest.mark.parametrize("nested", [False, True])
def test_memory_of_dropped_results_is_used_again(nested: bool) -> None:
    f, x = adding(nested), tc.ones(SIZE)
    for _ in range(8):
        f(x, x)
    assert len({address(f(x, x)) for _ in range(20)}) <= 2


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("look", LOOKS)
def test_memory_that_is_looked_at_is_not_used_again(look: str, nested: bool) -> None:
    f, x = adding(nested), tc.zeros(SIZE)
    seen = []
    for k in range(12):
        x.fill_(k)
        seen.append(LOOKS[look](f(x, x)))
    for k, kept in enumerate(seen):
        assert (np.asarray(kept) == 2 * k).all()


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
@pytest.mark.parametrize("nested", [False, True])
def test_arrays_changed_by_their_owner_are_left_to_it(nested: bool) -> None:
    f, x = adding(nested), tc.ones(SIZE)
    for _ in range(6):
        f(x, x)
    for change in (lambda a: setattr(a, "shape", (SIZE // 2, 2)), lambda a: a.setflags(write=False)):
        for _ in range(3):
            change(f(x, x).numpy())
        result = f(x, x)
        assert result.shape == (SIZE,) and result.numpy().flags.writeable


def test_a_weak_reference_to_the_array_keeps_it_from_being_used() -> None:
    f, x = adding(True), tc.ones(SIZE)
    for _ in range(6):
        f(x, x)
    array = weakref.ref(f(x, x).numpy())
    for k in range(4):
        f(x * k, x)
    found = array()
    assert found is None or (found == 2).all()


def test_no_more_is_kept_than_stated() -> None:
    quarter = ((KEPT_BYTES // 16,), np.dtype(np.float32))
    assert kept_outputs([quarter] * 6) == {0, 1, 2, 3}
    assert kept_outputs([((KEPT_BYTES + 1,), np.dtype(np.int8)), quarter]) == {1}


def test_two_arrays_at_most() -> None:
    spare = Spare((8,), np.dtype(np.float32))
    held = [spare.take() for _ in range(5)]
    assert len({id(a) for a in held}) == 5 and len(spare._arrays) == 2
    del held
    assert spare.take() is not spare.take()
