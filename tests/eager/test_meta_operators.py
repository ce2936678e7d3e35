"""Every operator on meta tensors: the result has the shape, type and strides of the result with memory."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's sample database needs it

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.opinfo.run_opinfo import Unsupported, convert, function, in_scope, is_exact, leaves, samples  # noqa: E402
from tests.opinfo.test_opinfo import label  # noqa: E402

READ_VALUES = (NotImplementedError, RuntimeError, TypeError)
OTHER_ORDER = ("unfold_copy",)  # of a copy of memory that shows elements several times
OPERATORS = [
    op
    for op in op_db
    if in_scope(op) and function(op.name, op.variant_test_name) and is_exact(op.name) and op.name not in OTHER_ORDER
]


def to_meta(x: Any) -> Any:
    if isinstance(x, tracecomp.Tensor):
        return x.detach().to("meta").requires_grad_(x.requires_grad)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(to_meta, x))
    if isinstance(x, list | tuple):
        return type(x)(map(to_meta, x))
    if isinstance(x, dict):
        return {k: to_meta(v) for k, v in x.items()}
    return x


def told(x: Any) -> Any:
    strides = x.stride() if x.numel() and not any(n == 1 for n in x.shape) else None
    return tuple(x.shape), x.dtype, strides, x.requires_grad


@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_results_look_like_those_with_memory(op: Any) -> None:
    fn = function(op.name, op.variant_test_name)
    preferred = (torch.float32, torch.int64, torch.complex64, *op.dtypes)
    dtype = next((d for d in preferred if d in op.dtypes), torch.float32)
    for sample in samples(op, dtype, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                args, kwargs = convert(((sample.input, *sample.args), sample.kwargs), {})
            except Unsupported:
                continue
            if not any(isinstance(x, tracecomp.Tensor) for x in leaves((args, kwargs))):
                continue
            try:
                want = fn(*args, **kwargs)
            except NotImplementedError:  # types of elements that we do not compute with
                continue
            try:
                got = fn(*to_meta(args), **to_meta(kwargs))
            except READ_VALUES as error:
                assert "meta" in str(error), error
                continue
        for a, b in zip(leaves(want), leaves(got), strict=True):
            if isinstance(a, tracecomp.Tensor):
                assert b.is_meta, sample.summary()
                assert told(a) == told(b), sample.summary()
            else:
                assert a == b
