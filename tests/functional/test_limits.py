"""``finfo`` and ``iinfo``: PyTorch's numbers for every type, without optional packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tracecomp as tc

FLOATING = (
    "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
FIELDS = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")

WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None
import tracecomp as tc
for name in sys.argv[1:]:
    print(tc.finfo(getattr(tc, name)))
"""


@pytest.mark.parametrize("name", FLOATING)
def test_limits_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    found, want = tc.finfo(getattr(tc, name)), torch.finfo(getattr(torch, name))
    assert {f: getattr(found, f) for f in FIELDS} == {f: getattr(want, f) for f in FIELDS}


def test_limits_need_no_optional_package() -> None:
    command = [sys.executable, "-c", WITHOUT_ML_DTYPES, *FLOATING]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == [repr(tc.finfo(getattr(tc, name))) for name in FLOATING]
