"""Running one program on torch and on tracecomp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
Program = Callable[[Any], Any]


def outcome(program: Program, library: Any) -> Any:
    """Return the program's result, or the exception."""
    try:
        return program(library)
    except Exception as error:
        return error


def same(program: Program, atol: float = 1e-6) -> None:
    """Equal values, up to ``atol``, dtypes, shapes and structure; or exceptions of one type."""
    want, got = outcome(program, torch), outcome(program, tracecomp)
    if isinstance(want, Exception) or isinstance(got, Exception):
        names = {type(want).__name__.lstrip("_"), type(got).__name__}
        assert isinstance(got, type(want)) or len(names) == 1, f"{got!r} instead of {want!r}"
        return
    compare(want, got, atol)


def compare(want: Any, got: Any, atol: float = 1e-6) -> None:
    if isinstance(want, torch.Tensor):
        assert isinstance(got, tracecomp.Tensor)
        assert tuple(got.shape) == tuple(want.shape)
        assert repr(got.dtype) == repr(want.dtype)
        assert got.requires_grad == want.requires_grad
        expected = want.detach().resolve_conj().numpy()
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-5, atol=atol)
    elif isinstance(want, tuple | list):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            compare(a, b, atol)
    elif isinstance(want, torch.dtype | torch.device):
        assert repr(want) == repr(got)
    else:
        assert want == got or (want != want and got != got)


def same_text(program: Program) -> None:
    """Equal printed text."""
    assert repr(program(tracecomp)) == repr(program(torch))
