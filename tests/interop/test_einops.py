"""einops finds tensors whichever library is imported first, and is never imported by us."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("einops")

USE = "x = tracecomp.ones(2, 3); print(tuple(einops.rearrange(x, 'a b -> (a b)').shape), type(x).__name__)"


@pytest.mark.parametrize(
    "imports", ["import einops, tracecomp", "import tracecomp, einops", "import einops.layers; import tracecomp"]
)
def test_either_order_of_imports(imports: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{imports}\n{USE}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(6,) Tensor"


def test_einops_is_not_imported_by_us() -> None:
    code = "import sys, tracecomp; print('einops' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_numpy_arrays_still_work_and_unknown_types_are_refused() -> None:
    import einops
    import numpy as np

    assert einops.rearrange(np.ones((2, 3)), "a b -> b a").shape == (3, 2)
    with pytest.raises(RuntimeError, match="Tensor type unknown"):
        einops.rearrange(object(), "a b -> b a")
