"""vmap against a loop over examples: every kind of primitive, every in_dims, eager, compiled, differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
import tracecomp.nn.functional as F
from tests.ops.samples import samples_of, type_of
from tests.references import by_numpy
from tracecomp.base.errors import CaptureError
from tracecomp.eager.tensor import Tensor
from tracecomp.func.batching import Batch, batched_node
from tracecomp.func.vmap import vmap
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS

B = 3
RNG = np.random.default_rng(0)


def x(*shape: int) -> Tensor:
    return tracecomp.from_numpy(RNG.standard_normal(shape).astype(np.float32))


def ints(high: int, *shape: int) -> Tensor:
    return tracecomp.from_numpy(RNG.integers(0, high, shape))


def looped(fn: Callable[..., Any], inputs: tuple[Any, ...], in_dims: tuple[int | None, ...]) -> Any:
    rows = []
    for i in range(B):
        picked = [t if d is None else t.select(d, i) for t, d in zip(inputs, in_dims, strict=True)]
        out = fn(*picked)
        rows.append(out if isinstance(out, tuple) else (out,))
    return [tracecomp.stack(list(c)) for c in zip(*rows, strict=True)]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int | None, ...]]] = {
    "elementwise": (lambda a, b: a.exp() * b + 1, (x(B, 4), x(B, 4)), (0, 0)),
    "broadcast": (lambda a, b: a + b, (x(B, 4), x(B, 2, 4)), (0, 0)),
    "scalar": (lambda a, b: a * b, (x(B), x(5, 4)), (0, None)),
    "where": (lambda a, b: tracecomp.where(a > 0, a, b), (x(B, 4), x(4)), (0, None)),
    "sum": (lambda a: a.sum(0), (x(2, B, 4),), (1,)),
    "statistics": (lambda a: (a.mean(), a.var(1), a.argmax(1), a.logsumexp(-1)), (x(B, 2, 4),), (0,)),
    "softmax": (lambda a: a.softmax(-1), (x(4, B),), (1,)),
    "views": (lambda a: a.reshape(4, 2).t().flip(0)[:, 1:3], (x(B, 2, 4),), (0,)),
    "windows": (lambda a: a.unfold(0, 3, 2), (x(B, 9),), (0,)),
    "concat": (lambda a, b: tracecomp.cat([a, b], 0), (x(B, 2, 4), x(3, 4)), (0, None)),
    "pad": (lambda a: F.pad(a, (1, 2)), (x(B, 2, 4),), (0,)),
    "matmul": (lambda a, b: a @ b, (x(B, 2, 4), x(4, 5)), (0, None)),
    "matmul, other": (lambda a, b: a @ b, (x(2, 4), x(4, 5, B)), (None, 2)),
    "dot": (lambda a, b: a.dot(b), (x(B, 4), x(B, 4)), (0, 0)),
    "einsum": (lambda a, b: tracecomp.einsum("ij,jk->ki", a, b), (x(B, 2, 4), x(B, 4, 5)), (0, 0)),
    "index": (lambda a, i: a[i], (x(B, 6, 2), ints(6, 4)), (0, None)),
    "index of each": (lambda a, i: a[i], (x(6, 2), ints(6, B, 4)), (None, 0)),
    "index of both": (lambda a, i: a.index_select(1, i), (x(B, 2, 6), ints(6, B, 4)), (0, 0)),
    "gather": (lambda a, i: a.gather(0, i), (x(B, 6, 2), ints(6, B, 4, 2)), (0, 0)),
    "scatter": (lambda a, i: tracecomp.zeros(6).scatter_add(0, i, a), (x(B, 4), ints(6, B, 4)), (0, 0)),
    "index_add": (lambda a, i: tracecomp.zeros(6, 2).index_add(0, i, a), (x(B, 4, 2), ints(6, B, 4)), (0, 0)),
    "cumsum": (lambda a: a.cumsum(1), (x(B, 2, 4),), (0,)),
    "sort": (lambda a: a.sort(0)[0], (x(B, 4, 2),), (0,)),
    "topk": (lambda a: a.topk(2)[0], (x(B, 4),), (0,)),
    "assignment": (lambda a: _assigned(a), (x(B, 4),), (0,)),
    "conv of each": (lambda a, w: F.conv2d(a, w, padding=1), (x(B, 2, 3, 5, 5), x(4, 3, 3, 3)), (0, None)),
    "conv with each": (lambda a, w: F.conv2d(a, w), (x(2, 3, 5, 5), x(B, 4, 3, 3, 3)), (None, 0)),
    "conv of both": (lambda a, w: F.conv2d(a, w, groups=2), (x(B, 2, 4, 5, 5), x(B, 4, 2, 3, 3)), (0, 0)),
    "conv transposed": (lambda a, w: F.conv_transpose1d(a, w, stride=2), (x(B, 2, 3, 5), x(B, 3, 2, 3)), (0, 0)),
    "pooling": (lambda a: F.max_pool2d(a, 2), (x(B, 2, 3, 4, 4),), (0,)),
    "layer norm": (lambda a: F.layer_norm(a, (4,)), (x(B, 2, 4),), (0,)),
    "embedding": (lambda i, w: F.embedding(i, w), (ints(6, B, 4), x(6, 2)), (0, None)),
    "cross entropy": (lambda a, i: F.cross_entropy(a, i), (x(B, 4, 5), ints(5, B, 4)), (0, 0)),
    "cholesky": (lambda a: tracecomp.linalg.cholesky(a @ a.T + tracecomp.eye(3)), (x(B, 3, 3),), (0,)),
    "solve": (lambda a, b: tracecomp.linalg.solve(a + 4 * tracecomp.eye(3), b), (x(B, 3, 3), x(B, 3)), (0, 0)),
    "detached": (lambda a: a.detach() * a, (x(B, 4),), (0,)),
}  # fmt: skip


def _assigned(a: Tensor) -> Tensor:
    b = a.clone()
    b[1] = 5
    b[2:] += a[0]
    return b.mul_(2)


def values(found: Any) -> list[np.ndarray[Any, Any]]:
    return [t.detach().numpy() for t in (found if isinstance(found, tuple | list) else [found])]


def same(found: Any, expected: Any) -> None:
    for a, b in zip(values(found), values(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_equals_a_loop(name: str) -> None:
    fn, inputs, in_dims = CASES[name]
    same(vmap(fn, in_dims)(*inputs), by_numpy(looped)(fn, inputs, in_dims))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str) -> None:
    fn, inputs, in_dims = CASES[name]
    compiled = tracecomp.compile(lambda *a: vmap(fn, in_dims)(*a))
    for _ in range(2):
        found = compiled(*inputs)
    same(found, by_numpy(looped)(fn, inputs, in_dims))


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_a_mapped_function(name: str) -> None:
    fn, inputs, in_dims = CASES[name]
    grads = []
    for apply in (vmap(fn, in_dims), lambda *a: looped(fn, a, in_dims)):
        ins = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
        out = apply(*ins)
        total = sum((t * t).sum() for t in (out if isinstance(out, tuple | list) else [out]) if t.requires_grad)
        wanted = [t for t in ins if t.requires_grad]
        grads.append(tracecomp.autograd.grad(total, wanted) if wanted else [])
    same(*grads)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[1][0].is_floating_point()])
def test_mapped_gradients(name: str) -> None:
    fn, inputs, in_dims = CASES[name]

    def first(*ins: Tensor) -> Tensor:
        out = fn(*ins)
        return (out[0] if isinstance(out, tuple) else out).square().sum()

    gradient = tracecomp.func.grad(first)
    same(vmap(gradient, in_dims)(*inputs), looped(gradient, inputs, in_dims))


BATCHABLE = [
    op for op in OPS.values() if op.kind not in ("creation", "random", "control") and op.name not in ("conv_transpose",)
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", BATCHABLE, ids=lambda op: op.name)
def test_rules_on_the_samples_of_every_primitive(op: Any) -> None:
    """Each subset of operands as a batch of copies gives a batch of the plain result."""
    for case in samples_of(op):
        if not all(isinstance(a, np.ndarray) for a in case.arrays):
            continue
        with np.errstate(all="ignore"):
            plain = op.impl(*case.arrays, **case.attrs)
        tensors = [Tensor._wrap(a) for a in case.arrays]
        graph = Graph()
        given = [graph.add_input(type_of(a), "x") for a in case.arrays]
        node = graph.add(op, given, case.attrs)[0].node
        assert node is not None
        for mask in range(1, 1 << len(tensors)) if len(tensors) < 4 else (1, (1 << len(tensors)) - 1):
            mixed = [_copies(t) if mask >> i & 1 else t for i, t in enumerate(tensors)]
            found = batched_node(2, node, mixed)
            for batch, expected in zip(found, plain if isinstance(plain, tuple) else (plain,), strict=True):
                for row in batch.value._data:
                    np.testing.assert_array_equal(np.isnan(row), np.isnan(expected))
                    wide = np.result_type(row, float)
                    a, b = row.astype(wide), np.asarray(expected).astype(wide)
                    np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def _copies(t: Tensor) -> Batch:
    return Batch(Tensor._wrap(np.stack([t._data, t._data])))


def test_nested_and_moved() -> None:
    a, b = x(4, 3), x(5, 3)
    pairs = vmap(lambda u: vmap(lambda v: (u * v).sum())(b))(a)
    same(pairs, a @ b.T)
    same(vmap(lambda u: u * 2, in_dims=1, out_dims=1)(a), a * 2)
    same(vmap(lambda u: u * 2, in_dims=-1, out_dims=-1)(a), a * 2)
    out = vmap(lambda d: {"y": d["u"] + d["v"], "z": d["u"]}, in_dims=({"u": 0, "v": None},), out_dims={"y": 0, "z": 1})
    found = out({"u": a, "v": x(3)})
    assert found["y"].shape == (4, 3) and found["z"].shape == (3, 4)
    same(vmap(lambda u, k: u * k, in_dims=(0, None))(a, 3), a * 3)
    same(vmap(lambda u, *, w: u * w)(a, w=a), a * a)
    same(vmap(lambda u: b[0], out_dims=0)(a), b[0].expand(4, 3))
    same(vmap(lambda u: b[0], out_dims=None)(a), b[0])


def test_in_chunks() -> None:
    a = x(7, 3)
    same(vmap(lambda u: (u.sum(), u * 2), chunk_size=3)(a), [a.sum(1), a * 2])


def test_captured_tensors_take_part_in_gradients() -> None:
    w, a = x(3).requires_grad_(), x(4, 3)
    (g,) = tracecomp.autograd.grad(vmap(lambda u: (u * w).sum())(a).sum(), w)
    same(g, a.sum(0))


def test_randomness() -> None:
    a = x(5, 3)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda u: u + tracecomp.rand(3))(a)
    tracecomp.manual_seed(0)
    each = vmap(lambda u: (tracecomp.rand(3), tracecomp.rand(3)), randomness="different")(a)
    flat = tracecomp.cat(each).flatten()
    assert len(set(flat.tolist())) == flat.numel()
    once = vmap(lambda u: tracecomp.rand(3), randomness="same")(a)
    assert bool((once == once[0]).all())
    dropped = tracecomp.compile(lambda a: vmap(lambda u: F.dropout(u), randomness="different")(a))
    first = dropped(tracecomp.ones(50, 20))
    assert not tracecomp.equal(first, dropped(tracecomp.ones(50, 20)))
    with pytest.raises(RuntimeError, match="Only allowed values"):
        vmap(lambda u: u, randomness="no")


def test_running_a_trace_does_not_move_the_generator() -> None:
    tracecomp.manual_seed(0)
    before = tracecomp.get_rng_state()
    vmap(lambda u: u + 1)(x(3))
    assert tracecomp.equal(before, tracecomp.get_rng_state())


def test_recurrence_and_modules() -> None:
    lstm = tracecomp.nn.LSTM(3, 4)
    inputs = x(B, 6, 3)
    same(vmap(lambda u: lstm(u)[0])(inputs), tracecomp.stack([lstm(u)[0] for u in inputs]))
    models = [tracecomp.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = tracecomp.func.stack_module_state(models)
    a = x(5, 3)
    found = vmap(lambda p, b: tracecomp.func.functional_call(models[0], (p, b), (a,)))(params, buffers)
    same(found, tracecomp.stack([m(a) for m in models]))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: vmap(lambda a, b: a)(x(3), x(4)), ValueError, "Expected all tensors to have the same size"),
        (lambda: vmap(lambda a: a, in_dims=None)(x(3)), ValueError, "at least one input"),
        (lambda: vmap(lambda a: a, in_dims=2)(x(3)), ValueError, "dimensionality 1"),
        (lambda: vmap(lambda a: a)(3), ValueError, "non-Tensor"),
        (lambda: vmap(lambda a: 3)(x(3)), ValueError, "must only return Tensors"),
        (lambda: vmap(lambda a: a if a > 0 else -a)(x(3)), RuntimeError, "data-dependent control flow"),
        (lambda: vmap(lambda a: a * a.item())(x(3)), RuntimeError, "data-dependent control flow"),
        (lambda: vmap(lambda a: a * a.numpy())(x(3)), CaptureError, "runs once for all values"),
        (lambda: vmap(lambda a, b: a, in_dims=(0,))(x(3), x(3)), ValueError, "in_dims"),
        (lambda: vmap(lambda a: a, chunk_size=0), ValueError, "chunk_size"),
        (lambda: vmap(lambda a: a, out_dims=None)(x(3)), ValueError, "out_dims must be an int for a result"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_effects_are_refused() -> None:
    total, w = tracecomp.zeros(3), x(3).requires_grad_()
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda a: total.add_(a))(x(4, 3))
    with pytest.raises(RuntimeError, match="use func"):
        vmap(lambda a: [(a * w).sum().backward(), a][1])(x(4, 3))


def test_batch_norms_without_statistics_are_functions() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    found = []
    for t in (tracecomp, torch):
        model = t.func.replace_all_batch_norm_modules_(t.nn.Sequential(t.nn.BatchNorm1d(3), t.nn.ReLU()))
        params = {k: v.detach() for k, v in model.named_parameters()}
        run = t.func.functionalize(lambda x, m=model, p=params, t=t: t.func.functional_call(m, p, (x,)))
        found.append((run(t.tensor(x)).numpy(), model.eval()(t.tensor(x)).detach().numpy(), len(model.state_dict())))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_names_that_a_module_has_not_are_ignored_unless_strict() -> None:
    torch = pytest.importorskip("torch")
    for t in (tracecomp, torch):
        linear = t.nn.Linear(2, 2)
        given = {"weight": t.zeros(2, 2), "bias": t.ones(2), "other": t.ones(1)}
        assert t.func.functional_call(linear, given, t.ones(1, 2)).tolist() == [[1, 1]]
        with pytest.raises(RuntimeError, match="other"):
            t.func.functional_call(linear, given, t.ones(1, 2), strict=True)


def test_a_compiled_vmap_over_leaves_is_one_recording() -> None:
    """The example of a leaf requires grad too; its flag is not an outer tensor's, which would be guarded."""
    w = tracecomp.arange(6.0).reshape(2, 3).requires_grad_()
    compiled = tracecomp.compile(lambda x: tracecomp.func.vmap(lambda row: (row * x).sum())(w))
    for n in range(4):
        x = tracecomp.arange(3.0) + n
        assert tracecomp.allclose(compiled(x), w @ x)
    assert compiled.recordings == 1
