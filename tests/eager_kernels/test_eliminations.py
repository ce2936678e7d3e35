"""Linear algebra of real matrices: eager calls, programs, batch mates, threads and layouts give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.ops.samples import draw
from tracecomp.compiled.backends import Native
from tracecomp.eager.evaluate import evaluate
from tracecomp.eager_kernels import background, programs
from tracecomp.ir.arrays import same_bits
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype

Array = np.ndarray[Any, Any]

NAMES = sorted(op.name for op in OPS.values() if op.kind == "elimination")
LARGER = {"f32": {3: 19, 4: 34}, "f64": {3: 70, 4: 67, 5: 5}}
"""Larger first samples: beyond a panel, a strip or a vector, and not multiples of any."""


def compiled(op: Op, arrays: Sequence[Array], attrs: dict[str, Any], threads: int = 1) -> list[Array]:
    graph = Graph(op.name)
    values = [graph.add_input(TensorType(from_numpy_dtype(a.dtype), a.shape), f"x{n}") for n, a in enumerate(arrays)]
    results = graph.add(op, values, attrs)
    for value in results:
        graph.add_output(value)
    outs = [np.empty(v.shape, v.dtype.numpy) for v in results]
    Native(graph, {}, threads, frozenset()).run([np.ascontiguousarray(a) for a in arrays], outs)
    return outs


def eager(op: Op, arrays: Sequence[Array], attrs: dict[str, Any]) -> list[Array]:
    return outputs(evaluate(op, list(arrays), attrs))


def outputs(found: Any) -> list[Array]:
    return [*map(np.asarray, found)] if isinstance(found, tuple) else [np.asarray(found)]


def near(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether results are equal but for rounding, of matrices far from singular ones."""
    for x, y in zip(found, wanted, strict=True):
        bound = 1000 * np.finfo(x.dtype).eps * np.abs(y).max(initial=0.0) if x.dtype.kind == "f" else 0.0
        if x.dtype != y.dtype or x.shape != y.shape or not np.allclose(x, y, rtol=0, atol=bound):
            return False
    return True


def equal(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    return all(same_bits(x, y, any_nan=True) for x, y in zip(found, wanted, strict=True))


def drawn(op: Op, short: str, sizes: dict[int, int], seed: int = 0) -> list[tuple[list[Array], dict[str, Any]]]:
    """Operands for the samples of a type, with other sizes."""
    rng, found = np.random.default_rng(seed), []
    for sample in op.samples:
        kinds = [kind for _, kind, _ in sample.args]
        if kinds[0] in (short, "i32"):
            shapes = [tuple(sizes.get(n, n) for n in shape) for shape, _, _ in sample.args]
            arrays = [draw(rng, s, kind, domain) for s, (_, kind, domain) in zip(shapes, sample.args, strict=True)]
            found.append((arrays, dict(sample.attrs)))
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("short", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_eager_calls_have_the_bits_of_programs(name: str, short: str) -> None:
    op = OPS[name]
    given = [pair for pair in drawn(op, short, {}) if max(pair[0][0].shape) < 40]
    given += drawn(op, short, LARGER[short])[:1] if name != "pivot_order" else []
    for arrays, attrs in given:
        found, label = eager(op, arrays, attrs), (attrs, [a.shape for a in arrays])
        assert equal(found, compiled(op, arrays, attrs)), label
        assert near(found, outputs(op.impl(*arrays, **attrs))), label


def hard(shape: tuple[int, ...], seed: int) -> Array:
    """Numbers of all sizes, zeros of both signs, equal rows, infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp(5 * rng.standard_normal(shape))
    x[0, :, ::3], x[1, 2:4], x[2, 1, 3] = 0.0, -x[1, 5:7], (np.inf, -np.inf, np.nan, -0.0)[seed % 4]
    return x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["lu_factor", "triangular_solve", "cholesky", "det", "slogdet", "qr", "reflect"])
def test_hard_numbers(name: str) -> None:
    op = OPS[name]
    for seed in range(4):
        x = hard((3, 21, 21), seed)
        if name == "cholesky":
            x = np.einsum("bij,bkj->bik", x, x)
        rest = {"triangular_solve": [hard((3, 21, 7), 9)], "reflect": [x[:, 0, :21], hard((3, 21, 7), 9)]}.get(name, [])
        attrs = {"fails": "", "above": seed > 1, "ones": False, "turn": seed % 2 == 1, "strict": False, "full": False}
        attrs = {k: v for k, v in attrs.items() if k in op.attrs}
        with np.errstate(all="ignore"):
            assert equal(eager(op, [x, *rest], attrs), compiled(op, [x, *rest], attrs)), seed


CALLS: dict[str, Any] = {
    "cholesky": lambda a, b: torch.linalg.cholesky(a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)),
    "lu": lambda a, b: torch.linalg.lu_factor(a)[0],
    "solve": torch.linalg.solve,
    "triangular": lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    "slogdet": lambda a, b: torch.linalg.slogdet(a)[1],
    "qr": lambda a, b: torch.linalg.qr(a)[0],
    "wide qr": lambda a, b: torch.linalg.qr(torch.cat((a, b), -1))[1],
}  # fmt: skip


@pytest.mark.parametrize("n", [5, 83])
@pytest.mark.parametrize("name", CALLS)
def test_batch_mates_threads_and_layouts_change_no_bit(name: str, n: int) -> None:
    """Eager against eager: that it is what programs give is shown above."""
    rng = np.random.default_rng(n)
    a, b = (torch.tensor(rng.standard_normal((3, n, width))) for width in (n, 9))
    a += 3 * torch.eye(n, dtype=torch.float64)
    call, threads = CALLS[name], torch.get_num_threads()
    together = call(a, b)
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for k in range(3):
                alone = call(a[k], b[k])
                assert same_bits(alone.numpy(), together[k].numpy())
            moved = call(a.flip(0), b.flip(0)).flip(0)
            turned = call(a.mT.contiguous().mT, b.mT.contiguous().mT)
            many = call(a.repeat(40, 1, 1), b.repeat(40, 1, 1))
            for other in (moved, turned, many[-3:], many[:3]):
                assert same_bits(np.ascontiguousarray(other.numpy()), together.numpy())
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("n", [130, 200])
def test_wide_matrices_solve_their_equations(n: int) -> None:
    """Several panels of each step, where a program would take long to make."""
    rng = np.random.default_rng(n)
    a, b = torch.tensor(rng.standard_normal((2, n, n))), torch.tensor(rng.standard_normal((2, n, 70)))
    p, low, up = torch.linalg.lu(a)
    q, r = torch.linalg.qr(a)
    definite = a @ a.mT + n * torch.eye(n, dtype=torch.float64)
    factor = torch.linalg.cholesky(definite)
    pairs = [(a @ torch.linalg.solve(a, b), b), (p @ low @ up, a), (q @ r, a), (factor @ factor.mT, definite)]
    for found, wanted in pairs:
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-8)
    for one, whole in ((low[:1], torch.linalg.lu(a[0])[1]), (factor[:1], torch.linalg.cholesky(definite[0]))):
        assert same_bits(one[0].numpy(), whole.numpy())


def test_calls_that_come_again_get_a_program_with_the_same_bits_and_errors() -> None:
    a = torch.tensor(np.random.default_rng(0).standard_normal((2, 6, 6)))
    singular = torch.zeros(2, 6, 6, dtype=torch.float64)
    first = torch.linalg.inv(a)
    background.finish()  # requests of earlier tests may fill the queue
    for _ in range(programs.AFTER):
        torch.linalg.inv(a)
    background.finish()
    assert any(key[0] == "matrix_inverse" and p.run is not None for key, p in programs._programs.items())
    assert same_bits(torch.linalg.inv(a).numpy(), first.numpy())
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.inv: .* singular"):
        torch.linalg.inv(singular)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 2)), ((3, 3), (4, 2)), ((3, 3), (2, 3, 2))])
def test_operands_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.ones(s) for s in shapes)
    for name, attrs in (("matrix_solve", {}), ("triangular_solve", {"above": True, "ones": False, "turn": False})):
        with pytest.raises(RuntimeError, match=r"square|Incompatible"):
            evaluate(OPS[name], [a, b], attrs)
