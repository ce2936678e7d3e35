"""Arrays of the other byte order, as FITS and NetCDF files give: refused, or converted where a copy is made anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

KINDS = ("i2", "i8", "f2", "f4", "f8", "c8", "c16")
TAKES: dict[str, Callable[[Any], Any]] = {
    "from_numpy": torch.from_numpy,
    "tensor": torch.tensor,
    "as_tensor": torch.as_tensor,
    "list": lambda a: torch.tensor([a, a]),
    "compiled": lambda a: torch.compile(lambda x: x + 1)(a),
    "compiled beside a tensor": lambda a: torch.compile(lambda x, t: t + x)(a, torch.ones(3)),
    "from_dlpack": torch.from_dlpack,
}


def _swapped(kind: str) -> Any:
    a = np.arange(3).astype(kind)
    return a.astype(a.dtype.newbyteorder("S"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TAKES)
def test_arrays_of_the_other_byte_order_are_refused(name: str, kind: str) -> None:
    with pytest.raises((ValueError, BufferError), match="byte order"):
        TAKES[name](_swapped(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_advised_conversion_and_copies_to_a_dtype_keep_the_values(kind: str) -> None:
    a = _swapped(kind)
    native = a.astype(a.dtype.newbyteorder("="))
    assert np.array_equal(torch.from_numpy(native).numpy(), native)
    assert np.array_equal(torch.as_tensor(a, dtype=torch.complex128).numpy(), native.astype(np.complex128))


def test_bytes_have_no_order() -> None:
    assert torch.from_numpy(np.zeros(3, ">i1")).dtype is torch.int8
