"""Inputs that PyTorch refuses: the same calls raise the same type of error, and give no result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

ANY: Any = torch
TENSOR: Any = torch.Tensor
"""Without types, for arguments that checkers of types refuse."""

x = torch.arange(12.0).reshape(3, 4) + 1
wide, whole, three = x.double(), x.long(), torch.ones(3)
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "prelu": (lambda: F.prelu(x, torch.ones(4).double()), RuntimeError, "Type promoting not supported"),
    "prelu of integers": (lambda: F.prelu(whole, torch.ones(4)), RuntimeError, "Got Long and Float"),
    "vecdot": (lambda: torch.linalg.vecdot(x, wide), RuntimeError, "x of type Float and y of type Double"),
    "cross": (lambda: torch.cross(three, three.double()), RuntimeError, "expected scalar type Float but found Double"),
    "cdist": (lambda: torch.cdist(x, wide), RuntimeError, "expected scalar type Float but found Double"),
    "einsum": (lambda: torch.einsum("ij,ij", x, wide), RuntimeError, "expected scalar type Float but found Double"),
    "ldexp": (lambda: torch.ldexp(x, x > 5), NotImplementedError, "not implemented for 'Bool'"),
    "lu_unpack: type": (
        lambda: torch.lu_unpack(torch.eye(3), three.long()),
        RuntimeError,
        "LU_pivots must be of type torch.int32",
    ),
    "lu_unpack: too many": (
        lambda: torch.lu_unpack(torch.eye(3), torch.ones(4, dtype=torch.int32)),
        RuntimeError,
        "too many for 3 rows",
    ),
    "view_as_complex": (lambda: torch.view_as_complex(x), RuntimeError, "last dimension of size 2"),
    "view_as_complex of a number": (lambda: torch.view_as_complex(x[0, 0]), RuntimeError, "one or more dimensions"),
    "randint": (lambda: torch.randint(0, 300, (2,), dtype=torch.uint8), RuntimeError, "to - 1 is out of bounds"),
    "randint from": (lambda: torch.randint(-1, 3, (2,), dtype=torch.uint8), RuntimeError, "from is out of bounds"),
    "randint of many bits": (lambda: torch.randint(2**63, (2,)), ValueError, "must fit 64 bits"),
    "randint_like": (lambda: torch.randint_like(whole.byte(), 300), RuntimeError, "to - 1 is out of bounds"),
    "randperm": (lambda: torch.randperm(300, dtype=torch.uint8), RuntimeError, "without overflow"),
    "dropout": (lambda: F.dropout(whole, 0.5), RuntimeError, "result type Float can't be cast"),
    "linear of a number": (lambda: F.linear(x, torch.tensor(1.0)), RuntimeError, "they are 2D and 0D"),
    "conv_transpose of a number": (
        lambda: F.conv_transpose1d(x[None], torch.tensor(1.0)),
        RuntimeError,
        "0-dimensional weight",
    ),
    "interpolate by a huge integer": (
        lambda: F.interpolate(x[None], scale_factor=2**2000),
        TypeError,
        "must fit a double",
    ),
    "chained products of nothing": (lambda: torch.chain_matmul(), RuntimeError, "one or more matrices"),
    "chained product of a vector": (lambda: torch.chain_matmul(x[0]), RuntimeError, "2 dimensions"),
    "a negative adaptive size": (lambda: F.adaptive_avg_pool1d(x, -7), RuntimeError, "not be negative"),
    "binomial numbers of integers": (lambda: torch.binomial(x.long(), x), ValueError, "floating-point"),
    "binomial numbers of two dtypes": (lambda: torch.binomial(x, x.double()), RuntimeError, "expected Float"),
    "one int for a padding": (lambda: ANY.nn.functional.pad(x, 1), TypeError, "must be tuple of ints, not int"),
    "one int for a view's size": (lambda: ANY.as_strided(x, 3, 1), TypeError, "must be tuple of ints, not int"),
    "one int for axes of a rotation": (lambda: ANY.rot90(x, 1, 0), TypeError, "must be tuple of ints, not int"),
    "interpolate by nan": (lambda: F.interpolate(x[None], scale_factor=math.nan), RuntimeError, "does not fit int64"),
    "interpolate by infinity": (
        lambda: F.interpolate(x[None], scale_factor=math.inf),
        RuntimeError,
        "does not fit int64",
    ),
    "view of a tensor's size": (lambda: TENSOR.view(x, x), TypeError, "element of type Tensor"),
    "expand to numbers": (lambda: TENSOR.expand(three, three), TypeError, "element of type Tensor"),
    "einsum of numbers": (
        lambda: ANY.einsum("i,j", three, 3),
        TypeError,
        "ints, not int",
    ),
    "einsum of far labels": (lambda: torch.einsum(x, [0, 52]), ValueError, r"range \[0, 52\)"),
    "einsum of negative labels": (lambda: torch.einsum(x, [0, -1]), ValueError, r"range \[0, 52\)"),
    "in place on a number": (lambda: ANY.abs_(3), TypeError, "must be Tensor, not int"),
    "drawn into a number": (lambda: TENSOR.normal_(3), TypeError, "must be Tensor, not int"),
    "transposed number": (lambda: TENSOR.t_(3), TypeError, "must be Tensor, not int"),
    "item of a number": (lambda: TENSOR.item(3), TypeError, "must be a Tensor, not int"),
    "unravel_index": (lambda: torch.unravel_index(whole, 2**70), ValueError, "64 bits"),
    "range": (lambda: torch.range(3, math.inf), RuntimeError, "infinite or NaN"),
    "lstsq": (lambda: torch.linalg.lstsq(x, torch.tensor(1.0)), RuntimeError, "at least 1 dimension"),
    "pinv": (lambda: torch.linalg.pinv(x * math.nan), torch.linalg.LinAlgError, "failed to converge"),
    "histogramdd": (lambda: torch.histogramdd(torch.ones(0), 1), RuntimeError, "at least one coordinate"),
    "batch_norm": (lambda: F.batch_norm(whole, torch.zeros(4), torch.ones(4)), NotImplementedError, "'Long'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_inputs_that_pytorch_refuses_are_refused(name: str) -> None:
    call, kind, text = CALLS[name]
    with pytest.raises(kind, match=text) as raised:
        call()
    assert raised.type is kind


def test_outer_products_of_two_types_promote() -> None:
    assert torch.einsum("i,j->ij", three, three.double()).dtype is torch.float64
    assert torch.randint(0, 256, (2,), dtype=torch.uint8).dtype is torch.uint8
    assert sorted(torch.randperm(255, dtype=torch.uint8).tolist()) == list(range(255))
