"""Every dense CPU operator of torch's own sample database, on its first samples."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's sample database needs it

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.eager.rooms import with_room  # noqa: E402
from tests.opinfo.run_opinfo import (  # noqa: E402
    DTYPES,
    NARROW,
    Unsupported,
    check,
    convert,
    function,
    in_scope,
    is_exact,
    leaves,
    samples,
    takes,
)
from tests.surface.document import PATH as SURFACE  # noqa: E402

DIFFERENT = {
    "as_strided_scatter": "torch leaves the gradient of overwritten elements in place",
    "bfloat16": "needs ml_dtypes",
    "histogramdd": "torch searches unsorted edges",
    "matrix_exp": "torch loses digits in float32",
    "special.bessel_j0": "torch loses digits at large arguments",
    "special.bessel_y1": "torch loses digits at large arguments",
}
DIFFERENT_NARROW = {
    "complex": "there are no complex numbers of half types",
    "view_as_complex": "there are no complex numbers of half types",
    "addbmm": "torch rounds after each product of matrices",
    "nn.functional.conv_transpose2d": "torch rounds after each term",
    "nn.functional.conv_transpose3d": "torch rounds after each term",
    "nn.functional.embedding_bag": "torch rounds after each term",
    "polygamma": "torch has finite values at poles",
    "special.polygamma": "torch has finite values at poles",
}
OPERATORS = [
    op for op in op_db if in_scope(op) and op.name not in DIFFERENT and any(takes(op, d) for d in DTYPES.values())
]


def label(op: Any) -> str:
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name


def test_the_document_counts() -> None:
    entries = [op for op in op_db if in_scope(op) and any(takes(op, d) for d in DTYPES.values())]
    text = " ".join(SURFACE.read_text().split())
    assert f"PyTorch {torch.__version__[:4]}'s operator database (OpInfo) has {len(entries)} entries" in text
    assert len(DIFFERENT) == 6


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_first_samples(op: Any) -> None:
    fn = function(op.name, op.variant_test_name)
    assert fn is not None, "missing"
    agree(op, fn, list(DTYPES.values()), 2)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_first_samples_of_narrow_types(op: Any) -> None:
    fn = function(op.name, op.variant_test_name)
    if op.name not in DIFFERENT_NARROW:
        agree(op, fn, [NARROW[name] for name in ("uint8", "int16", "float16", "bfloat16")], 1)


def agree(op: Any, fn: Any, dtypes: list[Any], count: int) -> None:
    """The first ``count`` samples of each type have torch's results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in dtypes:
            if not takes(op, dtype):
                continue
            for sample in samples(op, dtype, count):
                try:
                    text = check(op, fn, sample, dtype, is_exact(op.name), compiled=False)
                except Unsupported:
                    continue
                assert text is None or text.startswith("torch raises"), (text, sample.summary())


def tensors(x: Any) -> list[Any]:
    return [t for t in leaves(x) if isinstance(t, tracecomp.Tensor) and t._data.size]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_results_that_share_memory_share_its_count_of_writes(op: Any) -> None:
    """Values that calls have prepared from a tensor are used until its memory counts a write."""
    fn, dtype = function(op.name, op.variant_test_name), torch.float32
    if fn is None or not takes(op, dtype):
        return
    for sample in samples(op, dtype, 3):
        memo: dict[int, Any] = {}
        try:
            args, kwargs = convert([sample.input, *sample.args], memo), convert(sample.kwargs, memo)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = fn(*args, **kwargs)
        except (Unsupported, RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            continue  # test_first_samples covers unsupported operators
        for given, made in product(tensors([*args, *kwargs.values()]), tensors(result)):
            if given is not made and np.may_share_memory(given._data, made._data):
                assert given._storage.memory is made._storage.memory


def _memory(t: Any) -> int:
    return int(t.untyped_storage().data_ptr())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_results_have_new_memory_where_those_of_torch_have(op: Any) -> None:
    """A write to a result must not change an operand; results in new memory are not views, which may refuse writes."""
    fn, dtype = function(op.name, op.variant_test_name), torch.float32
    if fn is None or not takes(op, dtype) or op.name == "resize_":  # it changes a clone, made by ``function``
        return
    for sample in samples(op, dtype, 12):
        try:
            memo: dict[int, Any] = {}
            args, kwargs = convert([sample.input, *sample.args], memo), convert(sample.kwargs, memo)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = fn(*args, **kwargs)
                theirs = op(sample.input, *sample.args, **sample.kwargs)
        except (Unsupported, RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            continue  # test_first_samples covers unsupported operators
        operands = [x for x in leaves([sample.input, sample.args, sample.kwargs]) if isinstance(x, torch.Tensor)]
        if any(x.layout != torch.strided or not x.is_contiguous() for x in operands):
            continue  # ``convert`` makes row-major tensors
        given = [t._data for t in tensors([*args, *kwargs.values()])]
        for ours, wanted in zip(leaves(result), leaves(theirs), strict=False):
            if not isinstance(ours, tracecomp.Tensor) or not isinstance(wanted, torch.Tensor) or not ours._data.size:
                continue
            if _memory(wanted) not in map(_memory, operands):
                assert not any(np.may_share_memory(ours._data, array) for array in given)
                assert not ours._is_view() or wanted._is_view()


def _told(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The observable state of a call's results, and of its operands afterwards."""
    tracecomp.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fn(*args, **kwargs)
    made = [t.detach() for t in tensors([result, args, kwargs]) if t.layout is tracecomp.strided]
    return [(t.numpy().tobytes(), t.shape, t.stride(), t._is_view()) for t in made]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", [op for op in OPERATORS if "empty" not in op.name], ids=label)
def test_operands_with_room_are_row_major(op: Any) -> None:
    """Memory behind the elements of an operand changes nothing about the results."""
    fn, dtype = function(op.name, op.variant_test_name), torch.float32
    if fn is None or not takes(op, dtype):
        return
    for sample in samples(op, dtype, 4):
        try:
            memo: dict[int, Any] = {}
            wanted = _told(fn, convert([sample.input, *sample.args], memo), convert(sample.kwargs, memo))
        except (Unsupported, RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            continue  # test_first_samples covers unsupported operators
        memo = {}
        args, kwargs = convert([sample.input, *sample.args], memo), convert(sample.kwargs, memo)
        for t in tensors([*args, *kwargs.values()]):
            if t.ndim and t._base is None and t._data.strides == np.empty(t.shape, np.float32).strides:
                with_room(t)
        assert _told(fn, args, kwargs) == wanted
