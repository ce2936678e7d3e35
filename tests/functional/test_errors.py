"""Bad calls raise the exception type that torch raises."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as tc
from tests.functional.reference import same

CALLS = [
    "T.tensor()", "T.tensor('a')", "T.tensor([None])", "T.tensor([[1], [1, 2]])", "T.tensor([300], dtype=T.uint8)",
    "T.zeros(-1)", "T.zeros('a')", "T.zeros(2.5)", "T.arange(1, 5, -1)", "T.arange(1, 5, 0)",
    "T.rand(3, dtype=T.int64)",
    "T.ones(3) + T.ones(4)", "T.ones(2) + [1]", "T.ones(2) + 'a'", "T.exp(2.0)", "T.ones(3) < 'a'", "T.add(1, 2)",
    "T.ones(2, dtype=T.bool) - T.ones(2, dtype=T.bool)", "-T.ones(2, dtype=T.bool)", "T.tensor([1]) // 0",
    "T.tensor([2]) ** -1", "T.ones(2, 3) @ T.ones(2, 3)", "T.mm(T.ones(2), T.ones(2))", "T.dot(T.ones(2), T.ones(3))",
    "T.bmm(T.ones(2, 3, 4), T.ones(2, 3, 4))", "T.ones(2, 3).view(4)", "T.ones(2, 3).t().view(6)",
    "T.ones(2, 3).reshape(-1, -1)", "T.ones(2, 3).sum(5)", "T.ones(2, 3).sum((0, 0))", "T.ones(2, 3).max(5)",
    "T.ones(0).max()", "T.ones(2, 3).permute(0)", "T.ones(2, 3).permute(0, 0)", "T.ones(2, 3).transpose(0, 2)",
    "T.ones(2, 3).squeeze(4)", "T.ones(2, 3).unsqueeze(4)", "T.ones(2, 3).expand(3, 3)", "T.cat([])",
    "T.cat([T.ones(2), T.ones(2, 2)])", "T.cat([T.ones(2, 3), T.ones(3, 2)])", "T.stack([T.ones(2), T.ones(3)])",
    "T.ones(4).split(-1)", "T.ones(4).split([1, 2])", "T.ones(4).chunk(0)", "T.ones(3).narrow(0, 2, 4)",
    "T.ones(2, 3).gather(0, T.ones(2, 3))", "T.ones(2, 3).index_select(0, T.tensor([2]))",
    "T.ones(2, 3).scatter(0, T.tensor([[5]]), 1.0)", "T.ones(3).masked_fill(T.ones(3), 1.0)", "T.ones(2).item()",
    "bool(T.ones(2))", "T.ones(2).cuda()", "T.zeros(2, device='cuda')", "T.ones(3, dtype=T.int64).mean()",
    "T.ones(3).topk(4)", "T.ones(3).kthvalue(4)", "T.einsum('ij,jk', T.ones(2, 3))", "T.einsum('i->j', T.ones(2))",
    "T.softmax(T.ones(3, dtype=T.int64), 0)", "T.clamp(T.ones(3))", "T.bincount(T.tensor([-1]))", "T.eye(-1)",
    "T.ones(2, 3).diagonal(0, 1, 1)", "T.ones(2).tril()", "T.normal(0.0, -1.0, (2,))", "T.bernoulli(T.ones(2) * 2)",
    "T.multinomial(T.ones(2), 3)", "T.randint(5, 5, (2,))", "T.linalg.inv(T.zeros(2, 2))",
    "T.linalg.cholesky(-T.eye(2))", "T.arange(3).repeat_interleave(T.tensor([2, 0, 1]), output_size=5)",
    "T.linalg.solve(T.ones(2, 3), T.ones(2))", "T.ones(2, 3).flip(5)", "T.roll(T.ones(3), (1, 2), 0)",
    "T.ones(2, 3).unflatten(1, (2, 2))", "T.searchsorted(T.ones(2, 2), T.ones(3, 3))", "len(T.tensor(1))",
    "T.ones(2).requires_grad_().numpy()", "T.set_default_dtype(T.int64)", "T.iinfo(T.float32)", "T.finfo(T.int64)",
    "T.from_numpy([1])", "T.ones(2, 3).size(2)", "T.allclose(T.ones(2), T.ones(2, dtype=T.float64))",
    "T.linalg.solve_triangular(T.ones(2, 2), T.ones(3, 3), upper=True)", "T.cholesky_solve(T.ones(3, 2), T.ones(2, 2))",
    "T.cholesky_solve(T.ones(2, 2).double(), T.ones(2, 2))", "T.triangular_solve(T.ones(3, 3), T.ones(2, 2))",
    "T.linalg.lu_solve(T.ones(2, 2), T.tensor([1, 2], dtype=T.int32), T.ones(3, 2))",
    "T.linalg.lu_solve(T.ones(2, 2), T.tensor([1, 2, 2], dtype=T.int32), T.ones(2, 2))",
    "T.linalg.solve_triangular(T.ones(2, 2), T.ones(2), upper=True)", "T.linalg.lstsq(T.ones(3, 2), T.ones(2, 1))",
    "T.bincount(T.ones(3))", "T.ones(3).add(1, alpha='a')", "T.full((2,), 'a')",
    "T.full(2, 1)", "T.arange('a')", "T.ones(2, 3).var(0, correction='a')", "T.ones(2, 3).norm(p='x')",
    "T.cartesian_prod(T.ones(2, 2))", "T.einsum('i1', T.ones(2, 3))", "T.set_grad_enabled('a')", "T.device('cpu', -5)",
    "T.promote_types(T.float32, 3)", "T.can_cast(3, 4)", "T.ones(2).copy_('a')",
    "T.ones(2).masked_scatter(T.tensor([True, True]), T.ones(1))", "T.ones(3)[1.5]", "T.ones(2).copy_(3)",
    "T.func.jacrev(lambda x: 3)(T.ones(2))", "T.einsum('i,j->ij', T.ones(2), T.ones(3, dtype=T.float64))",
    "T.linalg.lu_solve(T.eye(2), T.tensor([1., 2.]), T.ones(2, 2))", "T.ormqr(T.eye(2), T.ones(2).double(), T.eye(2))",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_same_exception(call: str) -> None:
    same(lambda T: eval(call, {"T": T}))


def test_where_takes_conditions_of_bool_and_uint8() -> None:
    x, y = tc.ones(2), tc.zeros(2)
    assert tc.where(tc.tensor([1, 0], dtype=tc.uint8), x, y).tolist() == [1.0, 0.0]
    with pytest.raises(RuntimeError, match=r"expected condition to be a boolean tensor, but got .* Long"):
        tc.where(tc.tensor([1, 0]), x, y)


OUT: dict[str, Any] = {
    "shifted": lambda T, x, i: T.add(x[:3], 1, out=x[1:4]),
    "shifted, of one operand": lambda T, x, i: T.exp(x[:3], out=x[1:4]),
    "itself": lambda T, x, i: T.add(x, 1, out=x),
    "one of two": lambda T, x, i: T.maximum(x[:3], x[3:], out=x[:3]),
    "running sums": lambda T, x, i: T.cumsum(x[:3], 0, out=x[1:4]),
    "gathered": lambda T, x, i: T.gather(x, 0, i, out=x[:3]),
    "selected": lambda T, x, i: T.index_select(x, 0, i, out=x[:3]),
    "joined": lambda T, x, i: T.cat([x[:1], x[:2]], out=x[:3]),
    "greatest": lambda T, x, i: T.topk(x, 3, out=(x[:3], T.empty(3, dtype=T.int64)))[0],
    "wide": lambda T, x, i: T.gather(x, 0, i, out=T.empty(3, dtype=T.float64)),
    "wide sums": lambda T, x, i: T.cumsum(x, 0, out=T.empty(6, dtype=T.float64)),
    "one element for all": lambda T, x, i: T.add(x[:3], 1, out=T.empty(1).expand(3)),
}


@pytest.mark.parametrize("name", OUT)
def test_out_may_not_be_what_is_read_meanwhile(name: str) -> None:
    torch = pytest.importorskip("torch")
    try:
        want = OUT[name](torch, torch.arange(6.0), torch.tensor([0, 2, 1])).tolist()
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:40].split("(")[0]):
            OUT[name](tc, tc.arange(6.0), tc.tensor([0, 2, 1]))
        return
    assert OUT[name](tc, tc.arange(6.0), tc.tensor([0, 2, 1])).tolist() == want


def test_scatter_without_a_source_says_what_it_lacks() -> None:
    with pytest.raises(TypeError, match=r"scatter.*'src' and 'value'"):
        tc.ones(2, 3).scatter(0, tc.tensor([[0]]))
