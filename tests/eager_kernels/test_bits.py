"""Eager operators and sums have the bits of compiled ones, whatever the shape and layout."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.test_native import EPSILON, NUMPY_ULP
from tracecomp.base import config
from tracecomp.compiled.backends import Native
from tracecomp.eager.evaluate import INEXACT, SLOW, evaluate
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.ops.random import philox

Array = np.ndarray[Any, Any]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, 2.0, -2.0, 3.0, 88.8, 1e30]


def compiled(name: str, arrays: Sequence[Array], **attrs: Any) -> Array:
    """Return the results of the operator as a separate program, for exactly these shapes."""
    graph = Graph(name)
    values = [graph.add_input(TensorType(from_numpy_dtype(a.dtype), a.shape), f"x{n}") for n, a in enumerate(arrays)]
    result = graph.apply(name, *values, **attrs)
    graph.add_output(result)
    out = np.empty(result.shape, result.dtype.numpy)
    Native(graph, {}, 1, frozenset()).run([np.ascontiguousarray(a) for a in arrays], [out])
    return out


def same_bits(a: Array, b: Array) -> bool:
    """Whether all but NaNs agree, signs of zeros included."""
    assert a.shape == b.shape and a.dtype == b.dtype
    bits = f"u{a.itemsize}"
    same = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape) * 3)
    flat = found.reshape(-1)
    for place in range(min(flat.size // 2, 60)):
        flat[2 * place] = SPECIAL[(place * (seed + 1) + seed) % len(SPECIAL)]
    with np.errstate(all="ignore"):
        return found.astype(dtype)


def near_the_exact_sum(found: Any, x: Array, axes: tuple[int, ...]) -> bool:
    """Whether ``found`` is the sum of ``x`` but for rounding: of each term once, as an order of any sum allows."""
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    terms = np.abs(wide).sum(axes) * np.finfo(x.dtype).eps
    count = max(x.size // max(np.size(found), 1), 1)
    return bool(np.all(np.abs(np.asarray(found) - wide.sum(axes)) <= (2 + np.sqrt(count)) * terms))


def arity(name: str) -> int:
    return len(OPS[name].samples[0].args)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(INEXACT))
def test_an_inexact_operator_has_the_bits_of_its_program(name: str) -> None:
    for dtype in ("float32", "float64", "float16"):
        given = [numbers((517,), dtype, seed) for seed in range(arity(name))]
        with np.errstate(all="ignore"):
            found = evaluate(OPS[name], given, {})
            assert same_bits(found, compiled(name, given))
            near = EPSILON[dtype] * (OPS[name].ulp + NUMPY_ULP)
            np.testing.assert_allclose(found, OPS[name].impl(*given), rtol=near, atol=EPSILON[dtype], err_msg=dtype)


def test_exact_operators_are_exactly_those_that_are_not_listed() -> None:
    """numpy's results of all other elementwise operators on floats have the bits of machine code."""
    for op in OPS.values():
        if op.kind != "elementwise" or op.name in INEXACT or op.samples[0].attrs or op.attrs or op.name == "complex":
            continue
        given = [numbers((301,), "float32", seed) for seed in range(len(op.samples[0].args))]
        if op.name == "where":
            given[0] = given[0] > 0
        try:
            op.result_types([TensorType(from_numpy_dtype(a.dtype), a.shape) for a in given], {})
        except (RuntimeError, NotImplementedError):
            continue
        with np.errstate(all="ignore"):
            found = np.asarray(op.impl(*given))
        if found.dtype.kind == "f":
            assert same_bits(found, compiled(op.name, given)), op.name
        else:
            assert np.array_equal(found, compiled(op.name, given)), op.name


@pytest.mark.parametrize("size", [0, 1, 3, 63, 64, 65, 127, 128, 1000, 200_003])
def test_one_kernel_serves_every_number_of_elements(size: int) -> None:
    x = numbers((size,), "float32")
    found = evaluate(OPS["exp"], [x], {})
    assert same_bits(
        found, np.concatenate([evaluate(OPS["exp"], [x[n : n + 50]], {}) for n in range(0, size, 50)] or [x])
    )


def layouts() -> dict[str, Array]:
    x = numbers((5, 7, 9), "float32")
    return {
        "permuted": x.transpose(2, 0, 1), "sliced": x[::2, 1:], "a column": x[:, :, 0], "reversed": x[::-1],
        "expanded": np.broadcast_to(x, (3, 5, 7, 9)), "0-d": x[0, 0, 0].reshape(()), "a scalar": x[0, 0, 0],
        "unaligned": np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("layout", layouts())
def test_the_layout_of_an_operand_changes_no_element(layout: str) -> None:
    x = layouts()[layout]
    found = np.asarray(evaluate(OPS["tanh"], [x], {}))
    assert same_bits(found, evaluate(OPS["tanh"], [np.array(x, order="C")], {}))
    assert found.flags.writeable and not np.may_share_memory(found, x)


def test_operands_broadcast_and_numbers_are_operands() -> None:
    x, y = np.abs(numbers((6, 1, 5), "float64")), numbers((4, 1), "float64", 1)
    whole = [np.array(a) for a in np.broadcast_arrays(x, y)]
    with np.errstate(all="ignore"):
        assert same_bits(evaluate(OPS["pow"], [x, y], {}), evaluate(OPS["pow"], whole, {}))
        assert same_bits(evaluate(OPS["pow"], [x, 2.5], {}), evaluate(OPS["pow"], [x, np.full(x.shape, 2.5)], {}))
        assert same_bits(evaluate(OPS["pow"], [2.5, y], {}), evaluate(OPS["pow"], [np.full(y.shape, 2.5), y], {}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", sorted(SLOW))
def test_slow_operators_on_many_elements_have_the_bits_of_numpy(name: str, dtype: str) -> None:
    """For every layout, and whichever operands are numbers."""
    for shape, axes in (((5003,), (0,)), ((9, 16, 31), (0, 2, 1)), ((9, 16, 31), (2, 0, 1))):
        given = [numbers(shape, dtype, seed).transpose(axes) for seed in range(arity(name))]
        if name == "where":
            given[0] = given[0] > 0
        for single in itertools.product((False, True), repeat=len(given)):
            if all(single):
                continue
            operands = [x[(1,) * x.ndim] if one else x for x, one in zip(given, single, strict=True)]
            with np.errstate(all="ignore"):
                expected = np.asarray(OPS[name].impl(*operands))
            found = evaluate(OPS[name], operands, {})
            assert same_bits(found, expected)
            assert found.strides == expected.strides


SHAPES = [
    (3,), (8,), (9,), (40,), (64,), (65,), (1000,), (16384,), (16385,), (100_003,), (17, 20), (20, 17), (2000, 3),
    (600, 200), (1200, 70), (5, 6, 7), (3, 100, 2), (8, 3, 40, 10), (1, 7), (7, 1), (40, 1, 3), (16, 2000), (2, 20000),
    (2, 300_007), (270_000, 2),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_sum_has_the_order_of_its_program(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            assert same_bits(evaluate(OPS["sum"], [x], {"axes": axes}), compiled("sum", [x], axes=axes)), axes


BATCHES = [
    (600, 1),
    (1200, 1, 2),
    (10, 1, 100),
    (3, 1, 70, 1),
    (15, 20_000),
    (1, 600, 100),
    (1, 270_000),
    (8, 1, 40, 50),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", BATCHES, ids=str)
def test_a_sum_does_not_depend_on_how_many_others_are_made(shape: tuple[int, ...]) -> None:
    """Eagerly and compiled, along every choice of axes, and again with twice as many elements along every kept axis."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for axes in (a for n in range(1, len(shape)) for a in itertools.combinations(range(len(shape)), n)):
        alone = evaluate(OPS["sum"], [x], {"axes": axes})
        for place, axis in enumerate(axis for axis in range(len(shape)) if axis not in axes):
            many = np.concatenate([x, 3 * x], axis)
            for found in (evaluate(OPS["sum"], [many], {"axes": axes}), compiled("sum", [many], axes=axes)):
                assert same_bits(np.take(found, range(shape[axis]), place), alone), (axes, axis)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_and_products_of_other_types_too(name: str, dtype: str) -> None:
    for shape in ((100,), (7, 70), (40, 3)):
        x = (1 + 0.05 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
        for axes in ((0,), (len(shape) - 1,), tuple(range(len(shape)))):
            assert same_bits(evaluate(OPS[name], [x], {"axes": axes}), compiled(name, [x], axes=axes)), (shape, axes)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_sum_begins_with_positive_zero_and_passes_nan_on(axes: tuple[int, ...]) -> None:
    for x in (np.full((3, 70), -0.0, np.float32), np.array([[np.inf, 1.0, np.nan], [-np.inf, 2.0, 3.0]])):
        with np.errstate(all="ignore"):
            assert same_bits(evaluate(OPS["sum"], [x], {"axes": axes}), compiled("sum", [x], axes=axes))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_the_layout_of_an_operand_changes_no_sum(seed: int) -> None:
    """Permuted, sliced, reversed, expanded and overlapping memory have the sums of a dense copy."""
    rng = random.Random(seed)
    shape = [rng.choice((1, 2, 3, 7, 9, 16, 20, 65)) for _ in range(rng.randint(1, 4))]
    dtype = rng.choice(("float32", "float64", "float16"))
    x = np.random.default_rng(seed).standard_normal([2 * n for n in shape]).astype(dtype)
    x = x.transpose(rng.sample(range(x.ndim), x.ndim))[tuple(slice(None, None, rng.choice((1, 2, -1))) for _ in shape)]
    if rng.random() < 0.3:
        x = np.broadcast_to(x, (3, *x.shape))
    if rng.random() < 0.3 and x.shape[-1] > 4:
        x = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1)
    axes = tuple(sorted(rng.sample(range(x.ndim), rng.randint(1, x.ndim))))
    for name in ("sum", "prod"):
        given = x if name == "sum" else (1 + x / 64).astype(dtype)
        found = evaluate(OPS[name], [given], {"axes": axes})
        assert same_bits(found, compiled(name, [given], axes=axes))
        if name == "sum":
            assert near_the_exact_sum(found, given, axes)
        else:
            np.testing.assert_allclose(found, given.astype(np.float64).prod(axes), rtol=100 * EPSILON[dtype])


def test_a_sum_of_an_expanded_array_has_the_order_of_a_copy() -> None:
    x = np.random.default_rng(0).standard_normal((30, 1, 70)).astype(np.float32)
    wide = np.broadcast_to(x, (30, 20, 70))
    for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        assert same_bits(evaluate(OPS["sum"], [wide], {"axes": axes}), compiled("sum", [wide.copy()], axes=axes))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_sums_without_elements_are_zero(axes: tuple[int, ...]) -> None:
    found = evaluate(OPS["sum"], [np.zeros((0, 3), np.float32)], {"axes": axes})
    assert same_bits(np.asarray(found), np.zeros(tuple(n for d, n in enumerate((0, 3)) if d not in axes), np.float32))


def test_numpy_can_be_asked_for() -> None:
    x = numbers((500,), "float32")
    with config.override(eager="numpy"), np.errstate(all="ignore"):
        assert same_bits(evaluate(OPS["erf"], [x], {}), OPS["erf"].impl(x))
        assert evaluate(OPS["sum"], [x[:7]], {"axes": (0,)}) == x[:7].sum() or np.isnan(x[:7].sum())


def test_random_bits_are_those_of_the_generator_s_definition_for_any_number_of_elements() -> None:
    """Seeds and offsets whose halves carry, and numbers of elements that leave some words of the last blocks out."""
    for seed, offset in ((0, 0), (67280421310721, 5), (-7, (1 << 40) + 3), (1 << 62, (1 << 32) - 5)):
        state = np.array([seed, offset], np.int64)
        for count in (0, 1, 2, 3, 4, 5, 7, 63, 64, 65, 66, 67, 68, 1000, 4099):
            blocks = -(-count // 4)
            words = np.array([philox(offset + n, seed) for n in range(blocks)], np.uint32)
            wanted = words.reshape(blocks, 4).T.reshape(-1)[:count].view(np.int32)
            assert np.array_equal(evaluate(OPS["random_bits"], [state], {"shape": (count,)}), wanted)
