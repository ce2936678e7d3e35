"""``tracecomp.testing`` against ``torch.testing``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp  # noqa: E402

CALLS = (
    "t.tensor([1., 2.]), t.tensor([1., 2.])", "t.tensor([1., 2.]), t.tensor([1., 2. + 1e-7])",
    "t.tensor([1., 2.]), t.tensor([1., 2.5])", "t.tensor([1, 2]), t.tensor([1, 3])", "t.ones(2, 2), t.zeros(2, 2)",
    "t.ones(2), t.ones(2).double()", "t.ones(2), t.ones(2).double(), check_dtype=False", "t.ones(2), t.ones(3)",
    "t.ones(2, 3), t.ones(3, 2).T", "t.ones(2, 3), t.ones(3, 2).T, check_stride=True",
    "t.tensor(1.), t.tensor(2.)", "1., 2.", "1, 2", "1, 1.", "1, 1., check_dtype=False", "1, t.tensor(1)",
    "True, False", "None, None", "'a', 'a'", "np.ones(1), np.zeros(1)", "t.ones(1), [1.]",
    "[t.ones(1)], [t.zeros(1)]", "[t.ones(1)], []", "{'a': t.ones(1)}, {'b': t.ones(1)}",
    "{'a': t.ones(1)}, {'a': t.zeros(1)}", "[1, [2]], [1, [3]]",
    "t.tensor([float('nan')]), t.tensor([float('nan')])",
    "t.tensor([float('nan')]), t.tensor([float('nan')]), equal_nan=True",
    "t.tensor([float('inf')]), t.tensor([float('inf')])", "t.ones(0), t.ones(0)",
    "t.ones(1), t.zeros(1), rtol=1.", "t.ones(1), t.zeros(1), rtol=0., atol=2.", "t.ones(1), t.zeros(1), msg='so'",
    "t.ones(1), t.zeros(1), msg=lambda text: 'so: ' + text", "t.ones(1, dtype=bool), t.zeros(1, dtype=bool)",
)  # fmt: skip


def outcome(library: Any, text: str) -> tuple[str, str]:
    try:
        eval(f"t.testing.assert_close({text})", {"t": library, "np": np})
    except Exception as error:
        message = "" if isinstance(error, TypeError) else str(error)
        lines = [line for line in message.splitlines() if "elative difference" not in line]
        return type(error).__name__, "\n".join(lines)
    return "", ""


@pytest.mark.parametrize("text", CALLS)
def test_assert_close(text: str) -> None:
    assert outcome(tracecomp, text) == outcome(torch, text)


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "uint8", "bool"])
def test_make_tensor(name: str) -> None:
    make, dtype = tracecomp.testing.make_tensor, getattr(tracecomp, name)
    x = make((40, 5), dtype=dtype, exclude_zero=True)
    assert x.dtype is dtype and x.shape == (40, 5) and (x != 0).all()
    assert not make(4, 5, dtype=dtype, noncontiguous=True).is_contiguous()
    low, high = (0, 1) if name == "bool" else (2, 5)
    y = make(100, dtype=dtype, low=low, high=high).double()
    assert low <= y.min() and y.max() < high


def test_make_tensor_mistakes() -> None:
    make = tracecomp.testing.make_tensor
    for options in ({"low": 2, "high": 1}, {"low": float("nan")}, {"low": 500, "high": 600}):
        with pytest.raises(ValueError, match="low"):
            make(2, dtype=tracecomp.uint8, **options)
    with pytest.raises(ValueError, match="requires_grad"):
        make(2, dtype=tracecomp.int64, requires_grad=True)
    assert make(2, dtype=tracecomp.float32, requires_grad=True).requires_grad
