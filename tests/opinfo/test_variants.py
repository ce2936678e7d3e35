"""Methods, in-place methods and bad inputs of torch's sample database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

import tracecomp  # noqa: E402
from tests.opinfo.run_opinfo import (  # noqa: E402
    DTYPES,
    TIES,
    Unsupported,
    convert,
    difference,
    function,
    in_scope,
    is_exact,
    op_db,
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore")

ABSENT = {"stft", "istft", "as_strided_", "bfloat16", "matrix_exp"}
# Memory that overlaps or cannot grow does not survive the conversion of arguments; the rest are checks of ``out``.
UNCHECKED = ("single memory location", "resizable", "Expected out tensor", "tensor out", "_sizes.size()")


def variants() -> Iterator[Any]:
    for op in op_db:
        if not in_scope(op) or not is_exact(op.name) or op.name in TIES:
            continue
        for variant, in_place in ((op.method_variant, False), (op.inplace_variant, True)):
            name = getattr(variant, "__name__", "")
            if name and name.isidentifier() and name not in ABSENT:
                yield pytest.param(op, variant, in_place, id=f"{op.name}-{op.variant_test_name}-{name}")


@pytest.mark.parametrize(("op", "variant", "in_place"), list(variants()))
def test_method(op: Any, variant: Any, in_place: bool) -> None:
    method = getattr(tracecomp.Tensor, variant.__name__)
    for dtype in DTYPES.values():
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for _, sample in zip(range(3), op.sample_inputs("cpu", dtype), strict=False):
            if not isinstance(sample.input, torch.Tensor) or (in_place and sample.broadcasts_input):
                continue
            try:
                first, *rest = convert((sample.input, *sample.args), {})
                options = convert(sample.kwargs, {})
                start = sample.input.clone() if in_place else sample.input
                try:
                    want = variant(start, *sample.args, **sample.kwargs)
                except (RuntimeError, TypeError, IndexError):
                    continue
                got = method(first.clone() if in_place else first, *rest, **options)
                assert difference(want, got, 1e-7) is None
            except Unsupported:
                continue


BAD = [
    op
    for op in op_db
    if in_scope(op) and op.error_inputs_func and not op.name.startswith("__r") and function(op.name)
]


@pytest.mark.parametrize("op", BAD, ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_bad_inputs(op: Any) -> None:
    fn = function(op.name, op.variant_test_name)
    for bad in op.error_inputs("cpu"):
        sample = bad.sample_input
        try:
            args, options = convert((sample.input, *sample.args), {}), convert(sample.kwargs, {})
        except (Unsupported, RuntimeError, AttributeError, TypeError, ValueError):
            continue
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:
            if any(part in str(error) for part in UNCHECKED):
                continue
            with pytest.raises(Exception) as caught:
                fn(*args, **options)
            same = isinstance(caught.value, type(error))
            assert same or type(caught.value).__name__ == type(error).__name__.lstrip("_"), (caught.value, error)
