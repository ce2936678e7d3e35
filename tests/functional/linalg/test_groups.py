"""``grouped_mm``: the bits of one product for each group, eagerly, compiled, and in derivatives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.eager.tensor import Tensor

grouped_mm = tc.nn.functional.grouped_mm

ENDS = ([0, 3, 3, 40, 47], [1, 2, 3, 4, 50], [50] * 5, [0] * 5)
DTYPES = (tc.float32, tc.float64, tc.float16, tc.bfloat16)


def by_parts(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """The meaning of ``grouped_mm``, by products of two matrices."""
    spans = [*pairwise([0, *offs.tolist()])]
    if a.ndim == b.ndim:
        return tc.stack([a[:, start:end] @ b[start:end] for start, end in spans])
    if a.ndim == 3:
        return by_parts(b.t(), a.transpose(1, 2), offs).t()
    rest = tc.zeros(a.shape[0] - spans[-1][1], b.shape[2], dtype=a.dtype)
    return tc.cat([*(a[start:end] @ b[k] for k, (start, end) in enumerate(spans)), rest])


FORMS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "rows": lambda: (tc.randn(50, 33), tc.randn(5, 33, 70)),
    "rows of transposed matrices": lambda: (tc.randn(50, 33), tc.randn(5, 70, 33).transpose(1, 2)),
    "rows of every other element": lambda: (tc.randn(50, 66)[:, ::2], tc.randn(5, 66, 70)[:, ::2]),
    "columns": lambda: (tc.randn(5, 70, 33), tc.randn(33, 50)),
    "summed": lambda: (tc.randn(20, 50), tc.randn(50, 30)),
    "summed rows": lambda: (tc.randn(50, 20).t(), tc.randn(50, 30)),
    "no terms": lambda: (tc.randn(50, 0), tc.randn(5, 0, 7)),
    "no results": lambda: (tc.randn(50, 4), tc.randn(5, 4, 0)),
}


def same_bits(a: Tensor, b: Tensor) -> bool:
    x, y = (t.detach().double().numpy() for t in (a, b))
    return a.dtype is b.dtype and np.array_equal(x, y, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_every_group_has_the_bits_of_its_product(form: str, dtype: tc.dtype) -> None:
    tc.manual_seed(0)
    a, b = (x.to(dtype).requires_grad_() for x in FORMS[form]())
    compiled = tc.compile(lambda a, b, offs: grouped_mm(a, b, offs=offs), wait=True)
    for ends in ENDS:
        offs = tc.tensor(ends, dtype=tc.int32)
        found, want = grouped_mm(a, b, offs=offs), by_parts(a, b, offs)
        grad = tc.randn(want.shape).to(dtype)
        wanted = tc.autograd.grad(want, (a, b), grad)
        for result in (found, compiled(a, b, offs)):
            assert result.is_contiguous() and same_bits(result, want)
            gradients = tc.autograd.grad(result, (a, b), grad)
            assert all(map(same_bits, gradients, wanted))
    assert compiled.recordings == 1


def test_batches_need_no_offsets() -> None:
    a, b = tc.randn(3, 4, 5), tc.randn(3, 5, 6)
    assert same_bits(grouped_mm(a, b), tc.bmm(a, b))
    assert same_bits(tc._grouped_mm(a, b), tc.bmm(a, b))


def test_any_number_of_rows_is_one_recording() -> None:
    compiled = tc.compile(lambda a, b, offs: grouped_mm(a * 2, b, offs=offs).sin(), wait=True)
    b = tc.randn(3, 8, 17)
    for rows in (5, 9, 40, 6, 300, 3):
        a, offs = tc.randn(rows, 8), tc.tensor([1, 1, rows - 1], dtype=tc.int32)
        assert same_bits(compiled(a, b, offs), by_parts(a * 2, b, offs).sin())
    assert compiled.recordings == 2


def test_any_number_of_terms_is_one_recording() -> None:
    compiled = tc.compile(lambda a, b, offs: grouped_mm(a.t() * 2, b + 1, offs=offs), wait=True)
    for rows in (5, 9, 40, 6, 300, 3):
        a, b, offs = tc.randn(rows, 8), tc.randn(rows, 4), tc.tensor([1, 1, rows], dtype=tc.int32)
        assert same_bits(compiled(a, b, offs), by_parts(a.t() * 2, b + 1, offs))
    assert compiled.recordings == 2


def test_products_of_constants_have_the_bits_of_eager_mode() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)

    def f(x: Tensor) -> Tensor:
        left, right = tc.tensor(a.tolist()), tc.tensor([b.tolist()])
        return x + grouped_mm(left, right, offs=tc.tensor([8], dtype=tc.int32))

    assert same_bits(tc.compile(f, wait=True)(tc.zeros(8, 8)), f(tc.zeros(8, 8)))


def test_derivatives() -> None:
    offs = tc.tensor([0, 2, 3], dtype=tc.int32)
    for shapes in (((4, 3), (3, 3, 2)), ((2, 4), (4, 3)), ((3, 2, 3), (3, 4))):
        given = tuple(tc.randn(shape, dtype=tc.float64, requires_grad=True) for shape in shapes)
        assert tc.autograd.gradcheck(lambda a, b: grouped_mm(a, b, offs=offs), given, check_forward_ad=True)
        assert tc.autograd.gradgradcheck(lambda a, b: grouped_mm(a, b, offs=offs), given)


def test_examples_have_groups_of_their_own() -> None:
    a, b, offs = tc.randn(2, 5, 4), tc.randn(2, 4, 3), tc.tensor([[1, 4], [3, 3]], dtype=tc.int32)
    found = tc.func.vmap(lambda a, offs: grouped_mm(a, b, offs=offs))(a, offs)
    assert same_bits(found, tc.stack([grouped_mm(a[k], b, offs=offs[k]) for k in range(2)]))


@pytest.mark.parametrize("ends", [[3, 2, 5], [-1, 2, 5], [1, 2, 8]])
def test_groups_ascend_and_end_in_the_operand(ends: list[int]) -> None:
    a, b, offs = tc.randn(7, 4), tc.randn(3, 4, 2), tc.tensor(ends, dtype=tc.int32)
    compiled = tc.compile(lambda a, b, offs: grouped_mm(a, b, offs=offs), wait=True)
    compiled(a, b, tc.tensor([1, 2, 3], dtype=tc.int32))
    for f in (lambda a, b, offs: grouped_mm(a, b, offs=offs), compiled):
        with pytest.raises(RuntimeError, match=r"offsets must ascend from 0 to at most 7, but are \["):
            f(a, b, offs)
