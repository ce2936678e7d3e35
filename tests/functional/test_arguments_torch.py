"""Arguments as users write them: the same results and types of errors as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp  # noqa: E402

EXPRESSIONS = (
    # Python's types as dtypes
    "t.zeros(2, dtype=float)", "t.ones(2).sum(dtype=int)", "t.tensor([1, 2], dtype=bool)", "t.ones(2).to(int)",
    "t.zeros(2, dtype='float32')", "t.zeros(2, dtype=np.float32)",
    # numbers that a type cannot hold, stored
    "t.full((1,), 300, dtype=t.int8)", "t.full((1,), 2**31, dtype=t.int32)", "t.full((1,), 1e300, dtype=t.float32)",
    "t.full((1,), -200, dtype=t.uint8)", "t.full((1,), -300, dtype=t.uint8)", "t.full((1,), float('inf'))",
    "t.zeros(1, dtype=t.int8).fill_(200.)", "t.zeros(1, dtype=t.uint8).fill_(-1)",
    "t.zeros(2, dtype=t.int8).masked_fill(t.tensor([True, False]), 300)",
    "t.zeros(2, dtype=t.int8).index_fill(0, t.tensor([0]), 300)",
    "t.zeros(2, dtype=t.int8).scatter(0, t.tensor([0]), 300)", "t.zeros(2, dtype=t.int8).__setitem__(0, 300)",
    "t.zeros(2, dtype=t.int64).__setitem__(0, float('nan'))",
    "t.zeros(2, dtype=t.int8).__setitem__(t.tensor([True, False]), 300)", "t.tensor(float('nan'), dtype=t.int64)",
    "t.tensor([300.], dtype=t.int8)", "t.tensor([-1], dtype=t.uint8)", "t.tensor(np.array([300]), dtype=t.int8)",
    "t.where(t.tensor([True]), 300, t.zeros(1, dtype=t.int8))", "t.clamp(t.zeros(1, dtype=t.int8), max=300)",
    "t.nn.functional.pad(t.zeros(1, dtype=t.int8), (1, 1), value=300)",
    # and computed with
    "t.ones(1, dtype=t.int8) + 300", "t.ones(1, dtype=t.uint8) - 2", "t.ones(1, dtype=t.int8) < 300",
    "t.tensor(2, dtype=t.uint8) << 2", "t.bitwise_left_shift(2, t.tensor([2], dtype=t.int8))",
    "t.tensor(-2, dtype=t.int8) >> 9", "t.tensor([1]) - True", "1 - t.tensor([True])",
    "t.tensor([1.]).sub_(t.tensor([True]))", "t.hypot(t.tensor([3]), t.tensor([4.]))", "t.flip(t.ones(2))",
    # lists with tensors and numpy's numbers in them
    "t.tensor([t.tensor(1.), 2.])", "t.tensor([[t.tensor(1.), 2], [3, 4]])", "t.tensor([t.ones(1), 2.])",
    "t.tensor([t.tensor(1), 2.5])", "t.tensor([np.int64(1), 2.])", "t.tensor([np.float32(1), 2.])",
    "t.tensor([t.tensor(1., dtype=t.float64), 2.])", "t.tensor([t.tensor(1., dtype=t.float16), 2])",
    "t.tensor([t.tensor(1. + 2j), 3])", "t.tensor([t.ones(2), t.ones(2)])", "t.tensor([True, 2, 3.])",
    "t.tensor(['a'])", "t.tensor([1, 'a'])", "t.tensor(2**63)", "t.tensor([2**63])",
    # one number
    "float(t.ones(2))", "int(t.zeros(0))", "complex(t.ones(2))", "float(t.ones(1, 1))", "t.ones(2).item()",
    "repr(t.iinfo(t.int64))", "repr(t.finfo(t.float16))", "t.stack([])",
    "t.orgqr(*t.geqrf(t.arange(6.).reshape(3, 2) ** 2))", "t.ones(3, 4) + t.ones(4, 5)",
    # positions
    "t.arange(4).index_select(0, t.tensor([-1]))", "t.zeros(3).index_add(0, t.tensor([-1]), t.ones(1))",
    "t.zeros(3).index_copy(0, t.tensor([-1]), t.ones(1))", "t.zeros(3).index_fill(0, t.tensor([-1]), 1.)",
    "t.nn.functional.embedding(t.tensor([-1]), t.ones(2, 2))", "t.arange(4).take(t.tensor([-1]))",
    "t.ones(3, 1, 3).gather(0, t.zeros(2, 3, 1, dtype=t.int64))", "t.tensor(1.).flatten(2)", "t.tensor(1.).flatten()",
    "t.take_along_dim(t.arange(4), t.tensor([-1]), 0)", "t.tensor(2.).index_select(0, t.tensor([0]))",
    # nested sequences
    "t.tensor([1, [2]])", "t.tensor([[1], 2])", "t.tensor([[1, 2], [3, [4]]])", "t.tensor([[1, 2], [3]])",
    "t.tensor(None)", "t.tensor([None])", "t.tensor(2**70)", "t.manual_seed(2**70)",
    # not tensors
    "t.zeros_like([1, 2])", "t.nn.functional.relu(1)", "t.nn.Linear(1, 1)([1])", "t.nn.ReLU()('a')",
    "t.nn.functional.linear(t.ones(1), [1.])",
    # probabilities
    "t.nn.functional.binary_cross_entropy(t.tensor([2.]), t.tensor([1.]))",
    "t.nn.functional.binary_cross_entropy(t.tensor([.5]), t.tensor([2.]))",
    "t.nn.functional.binary_cross_entropy(t.tensor([float('nan')]), t.tensor([1.]))",
    "t.nn.functional.binary_cross_entropy(t.tensor([.5]), t.tensor([1]))",
    "t.add(t.ones(2), 1, out=[t.ones(2)])", "t.imag(t.ones(1))", "t.ones(1).imag",
    "t.nn.functional.gelu(t.ones(2), out=t.zeros(2))",
    "t.linalg.solve_triangular(t.full((1, 1), float('nan')), t.ones(1, 1), upper=True, unitriangular=True)",
    # text
    "f'{t.tensor(3)} {t.tensor(2.5, requires_grad=True)} {t.tensor(2.5):.2f} {t.ones(2)}'", "~t.ones(1)",
    "t.bitwise_not(t.ones(1))", "f'{t.nn.Linear(1, 1, bias=False).state_dict()}'[:12]",
)  # fmt: skip


def outcome(library: Any, text: str) -> str:
    try:
        return repr(eval(text, {"t": library, "np": np}))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_same_outcome(text: str) -> None:
    assert outcome(tracecomp, text) == outcome(torch, text)
