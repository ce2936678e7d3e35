"""The grouped product that transformers registers is an operator here."""

from __future__ import annotations

import pytest

import tracecomp as tc
from tracecomp import library
from tracecomp.eager.tensor import Tensor


@pytest.fixture(autouse=True)
def own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that these tests define end with them."""
    monkeypatch.setattr(library, "_OPERATORS", dict(library._OPERATORS))


def looped(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """The Python code of the operator of transformers."""
    output, start = tc.zeros(input.shape[0], weight.shape[2]), 0
    for k, end in enumerate(offs.tolist()):
        tc.mm(input[start:end], weight[k], out=output[start:end])
        start = end
    return output


def test_graphs_contain_the_grouped_product() -> None:
    name = "transformers::grouped_mm_fallback"
    tc.library.custom_op(name, looped, mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    operator = library.ops.transformers.grouped_mm_fallback
    a, b, offs = tc.randn(9, 4), tc.randn(3, 5, 4).transpose(1, 2), tc.tensor([2, 2, 7])
    compiled = tc.compile(lambda a, b, offs: operator(a, b, offs=offs) + 1, wait=True)
    for found in (operator(a, b, offs=offs) + 1, compiled(a, b, offs)):
        assert found.equal(looped(a, b, offs) + 1)
    assert "grouped_mm" in str(compiled.graphs[0])


def test_an_operator_with_other_arguments_keeps_its_function() -> None:
    def added(input: Tensor, weight: Tensor, offs: Tensor, more: int) -> Tensor:
        return input + more

    tc.library.custom_op("transformers::grouped_mm_fallback", added)
    operator = library.ops.transformers.grouped_mm_fallback
    assert operator(tc.ones(2), tc.ones(1), tc.ones(1), 3).tolist() == [4, 4]
