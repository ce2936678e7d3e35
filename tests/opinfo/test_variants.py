"""Methods, in-place methods and bad inputs of torch's sample database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

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
    takes,
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore")

ABSENT = {"as_strided_", "bfloat16", "matrix_exp"}
# Memory that overlaps or cannot grow does not survive the conversion of arguments; the rest are checks of ``out``.
UNCHECKED = (
    "single memory location", "resizable", "Expected out tensor", "tensor out", "_sizes.size()", "argument 'out'",
)  # fmt: skip


def variants() -> Iterator[Any]:
    for op in op_db:
        if not in_scope(op) or not is_exact(op.name) or op.name in TIES:
            continue
        for variant, in_place in ((op.method_variant, False), (op.inplace_variant, True)):
            name = getattr(variant, "__name__", "")
            if name and name.isidentifier() and name not in ABSENT:
                yield pytest.param(op, variant, in_place, id=f"{op.name}-{op.variant_test_name}-{name}")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("op", "variant", "in_place"), list(variants()))
def test_method(op: Any, variant: Any, in_place: bool) -> None:
    method = getattr(tracecomp.Tensor, variant.__name__)
    for dtype in DTYPES.values():
        if not takes(op, dtype):
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
    if in_scope(op) and op.error_inputs_func is not None and not op.name.startswith("__r") and function(op.name)
]


@pytest.mark.sampled(6)
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


# Types that torch has no kernel for and that are taken here, with the right values.
TAKEN = {
    "clamp": "bools", "div": "bools", "gradient": "bools", "nn.functional.pad": "bools", "scatter_reduce": "bools",
    "geometric": "drawn as bools", "index_reduce": "bools", "randint_like": "drawn as bools",
    "nn.functional.unfold": "integers", "nn.functional.soft_margin_loss": "integers", "round": "decimals of integers",
    "nn.functional.hinge_embedding_loss": "integers", "nn.functional.feature_alpha_dropout": "integers",
    "pca_lowrank": "integers",
}  # fmt: skip


def of_type(x: Any, dtype: Any) -> Any:
    """Arguments whose floating tensors become positive numbers of ``dtype``."""
    if isinstance(x, torch.Tensor):
        return x.detach().abs().add(1).to(dtype) if x.is_floating_point() else x
    if isinstance(x, dict):
        return {k: of_type(v, dtype) for k, v in x.items()}
    return type(x)(of_type(v, dtype) for v in x) if type(x) in (list, tuple) else x


@pytest.mark.parametrize(
    "op",
    [op for op in op_db if in_scope(op) and op.name not in TAKEN and not op.name.startswith("masked.")],
    ids=lambda op: f"{op.name}-{op.variant_test_name}",
)
def test_types_without_kernel(op: Any) -> None:
    fn = function(op.name, op.variant_test_name)
    supported = op.supported_dtypes("cpu")
    for dtype in (torch.int64, torch.bool):
        if fn is None or dtype in supported or torch.float32 not in supported:
            continue
        for _, sample in zip(range(2), op.sample_inputs("cpu", torch.float32), strict=False):
            args, options = of_type((sample.input, *sample.args), dtype), of_type(sample.kwargs, dtype)
            try:
                op(*args, **options)
            except Exception as error:
                if "acc_dtype" in str(error):  # a type for adding up chunks, which there are none of here
                    continue
                with pytest.raises(RuntimeError if isinstance(error, RuntimeError) else type(error)):
                    fn(*convert(args, {}), **convert(options, {}))
