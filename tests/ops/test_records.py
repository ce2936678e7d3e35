"""Every operator record, on its own samples: types, shapes, errors, completeness and traits."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import concrete, draw, native_samples_of, samples_of, type_of
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS, Composed, Op
from tracecomp.ops.autodiff import Sym

EVERY = [pytest.param(op, id=op.name) for op in OPS.values()]


def results(op: Op, arrays: Any, attrs: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        out = op.impl(*arrays, **attrs)
    return tuple(map(np.asarray, out)) if isinstance(out, tuple) else (np.asarray(out),)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", EVERY)
def test_infer_tells_what_impl_returns(op: Op) -> None:
    for case in samples_of(op):
        found = tuple(type_of(a) for a in results(op, case.arrays, case.attrs))
        assert found == op.result_types(case.types, case.attrs), str(case)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", EVERY)
def test_impl_leaves_its_operands_alone(op: Op) -> None:
    for case in samples_of(op):
        before = [a.tobytes() for a in case.arrays]
        results(op, case.arrays, case.attrs)
        assert [a.tobytes() for a in case.arrays] == before, str(case)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", EVERY)
def test_strided_operands_give_the_same(op: Op) -> None:
    for case in samples_of(op):
        want = results(op, case.arrays, case.attrs)
        strided = [_strided(a) for a in case.arrays]
        got = results(op, strided, case.attrs)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=str(case))


def _strided(a: Any) -> Any:
    wide = np.zeros((*a.shape, 2), a.dtype)
    wide[..., 0] = a
    return wide[..., 0]


@pytest.mark.parametrize("op", EVERY)
def test_bad_inputs_are_refused(op: Op) -> None:
    for bad in op.errors:
        case = concrete(op, bad.sample)
        with pytest.raises(bad.error, match=bad.match):
            op.result_types(case.types, case.attrs)
            op.impl(*case.arrays, **case.attrs)


@pytest.mark.parametrize("op", [p for p in EVERY if isinstance(p.values[0].loop, Composed)])
def test_composed_loop_meaning_is_impl(op: Op) -> None:
    assert isinstance(op.loop, Composed)
    for case in native_samples_of(op):
        graph = Graph("composed")
        operands = [Sym(graph, graph.add_input(t, f"x{i}")) for i, t in enumerate(case.types)]
        found = op.loop.fn(*operands, **case.attrs)
        for result in found if isinstance(found, tuple) else (found,):
            graph.add_output(result.value)
        wanted = results(op, case.arrays, case.attrs)
        for got, want in zip(graph.interpret(*case.arrays), wanted, strict=True):
            assert type_of(got) == type_of(want)
            tolerance = 2e-2 if got.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=str(case))


VIEWS = [p for p in EVERY if p.values[0].kind == "view"]


@pytest.mark.parametrize("op", VIEWS)
def test_views_share_memory(op: Op) -> None:
    for case in samples_of(op):
        (base,) = case.arrays
        (seen,) = results(op, case.arrays, case.attrs)
        assert not seen.size or np.shares_memory(seen, base), str(case)


@pytest.mark.parametrize("op", VIEWS)
def test_write_is_assignment_through_the_view(op: Op) -> None:
    assert op.write is not None
    for number, case in enumerate(samples_of(op)):
        (base,) = case.arrays
        (seen,) = results(op, case.arrays, case.attrs)
        new = draw(np.random.default_rng(number), seen.shape, type_of(seen).dtype.short, "any")
        graph = Graph("write")
        operands = [Sym(graph, graph.add_input(type_of(a), n)) for a, n in ((base, "base"), (new, "new"))]
        made = op.write(*operands, **case.attrs)
        assert isinstance(made, Sym)
        graph.add_output(made.value)
        (got,) = graph.interpret(base, new)
        written = base.copy()
        target = op.impl(written, **case.attrs)
        for place in np.ndindex(seen.shape):
            target[place] = new[place]
        np.testing.assert_array_equal(got, written, err_msg=str(case))


@pytest.mark.parametrize("op", EVERY)
def test_record_is_complete(op: Op) -> None:
    assert op.doc
    assert op.samples
    if op.kind == "view":
        assert op.write is not None
    for name in ("any sample with data", "a 0-d or empty sample"):
        shapes = [spec[0] for s in op.samples for spec in s.args] + [s.attrs.get("shape", ()) for s in op.samples]
        wanted = (lambda s: 0 not in s) if name.startswith("any") else (lambda s: s == () or 0 in s)
        assert any(wanted(s) for s in shapes), f"{op.name} lacks {name}"


@pytest.mark.parametrize(
    "name, dtype", [("sum", np.complex64), *product(("sum", "max", "min"), (np.float32, np.float16, np.int32))]
)
@pytest.mark.parametrize("shape, axes", [((3000, 2), (1,)), ((700, 16), (1,)), ((500, 3, 5), (1, 2)), ((5, 999), (0,))])
def test_many_short_lines(name: str, dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    if x.dtype.kind == "f":
        x.reshape(-1)[7] = np.nan
    (found,) = results(OPS[name], (x,), {"axes": axes})
    exact = getattr(np, name)(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64), axis=axes)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, exact.astype(dtype))
