"""Valid values of ``out=``, for every operator of torch's sample database: types, shapes, strides, warnings."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import tracecomp  # noqa: E402
from tests.opinfo.run_opinfo import takes  # noqa: E402
from tests.opinfo.run_out import compare, takes_out  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

DIFFERENT = {
    "linspace": "torch keeps the shape of an out that has as many elements",
    "logspace": "torch keeps the shape of an out that has as many elements",
    "lu": "torch raises AttributeError for an out that is no tensor",
    "normal": "torch raises NotImplementedError for an out of integers",
    "split_with_sizes_copy": "torch returns None",
    "unbind_copy": "torch returns None",
}
TRIED = {"float64 for result 0", "int64 for result 0", "other elements", "every other", "expanded", "no tensor"}
"""Values for ``out`` here; ``python -m tests.opinfo.run_out`` runs all of them, with other dtypes of operands."""
OPERATORS = [op for op in op_db if takes_out(op) and op.name not in DIFFERENT and takes(op, torch.float32)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_out_is_taken_or_refused_as_by_torch(op: Any) -> None:
    assert list(compare(op, torch.float32, False, TRIED)) == []


@pytest.mark.parametrize("name", ["add", "sum", "matmul", "max", "cat", "cumsum"])
def test_compiled_functions_take_and_refuse_out_alike(name: str) -> None:
    for op in op_db:
        if op.name == name and takes_out(op):
            assert list(compare(op, torch.float32, True, TRIED)) == []


def test_functions_that_take_no_out_say_so() -> None:
    x = tracecomp.ones(2, 2)
    calls: tuple[Any, ...] = (tracecomp.ravel, tracecomp.tile, tracecomp.nn.functional.silu)
    for call in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
            call(x, out=x)
