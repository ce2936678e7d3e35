"""Eager products have the bits of compiled ones, whatever their shapes and layouts, and of each row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.eager_kernels.test_bits import compiled, same_bits
from tracecomp.codegen.text import native
from tracecomp.eager.evaluate import evaluate
from tracecomp.eager_kernels import products
from tracecomp.ir.op import OPS
from tracecomp.ir.types import from_numpy_dtype
from tracecomp.runtime.library import Library
from tracecomp.runtime.threads import get_num_threads, set_num_threads

Array = np.ndarray[Any, Any]
CONTRACT = OPS["contract"]

SPECS = (
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->nm", "bmk,bkn->bmn", "bhqd,bhkd->bhqk", "bshd,bthd->bhst",
    "bsk,nk->bsn", "bsk,bsn->kn", "mkl,lkn->mn", "mlk,kln->nm", "abmk,akn->abmn", "k,k->", "mk,k->m", "m,mk->k",
    "bk,bk->b", "m,n->mn", "bm,bm->bm", "ngcuvxy,goc->nguvxyo", "bmk,bk->bm", "sbkm,bksn->mn",
)  # fmt: skip
WITH_VECTORS = ("k,k->", "mk,k->m", "m,mk->k", "bk,bk->b", "bmk,bk->bm")
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 48, 50, 97, 130, 200])


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    found = np.random.default_rng(seed).standard_normal(shape)
    return (found + 1j * found[::-1]).astype(dtype) if dtype.startswith("c") else found.astype(dtype)


def lying(x: Array, how: int) -> Array:
    """Return ``x`` with its axes in a different memory order, or with gaps."""
    if how == 0 or not x.ndim:
        return x
    if how == 1:
        wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    order = np.random.default_rng(how).permutation(x.ndim)
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


def near_the_exact_product(found: Array, spec: str, arrays: list[Array]) -> bool:
    """Whether ``found`` is the product of the arrays in wider numbers, but for a rounding of each term."""
    wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in arrays]
    terms = np.einsum(spec, *map(np.abs, wide)) * np.finfo(found.dtype).eps
    summed = np.prod(
        [
            n
            for t, a in zip(spec.split("->")[0].split(","), arrays, strict=True)
            for c, n in zip(t, a.shape, strict=True)
            if c not in spec.split("->")[1]
        ]
    )
    return bool(np.all(np.abs(found - np.einsum(spec, *wide)) <= (2 + np.sqrt(summed)) * terms))


@settings(max_examples=30)
@given(st.sampled_from(SPECS), st.data(), st.sampled_from(["float32"] * 4 + ["float64", "float16", "complex64"]))
def test_an_eager_product_has_the_bits_of_its_program(spec: str, data: st.DataObject, dtype: str) -> None:
    operands, _ = spec.split("->")
    labels = sorted({c for c in operands if c.isalpha()})
    few = st.sampled_from([1, 2, 3, 5]) if len(labels) > 4 else SIZES
    sizes = {c: data.draw(few) for c in labels}
    arrays = [numbers(tuple(sizes[c] for c in t), dtype, n) for n, t in enumerate(operands.split(","))]
    # A product with a vector is a sum, whose order is that of memory (docs/numerics.md, Order of sums, 1).
    orders = st.integers(0, 1 if spec in WITH_VECTORS else 4)
    given_ = [lying(a, data.draw(orders)) for a in arrays]
    found = evaluate(CONTRACT, given_, {"spec": spec})
    want = compiled("contract", arrays, spec=spec)
    assert near_the_exact_product(found, spec, arrays)
    if dtype.startswith("c"):
        assert same_bits(found.real, want.real) and same_bits(found.imag, want.imag)
    else:
        assert same_bits(np.asarray(found), want)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("spec", ["mk,nk->mn", "mk,kn->mn"])
@pytest.mark.parametrize("k, n", [(64, 64), (300, 100), (1000, 3), (37, 1), (5, 500)])
def test_a_row_of_a_product_is_the_product_of_the_row(spec: str, k: int, n: int) -> None:
    """Eager and compiled, for any number of other rows."""
    x, w = numbers((70, k), "float32", 0), numbers((n, k) if "nk" in spec else (k, n), "float32", 1)
    whole = evaluate(CONTRACT, [x, w], {"spec": spec})
    assert near_the_exact_product(whole, spec, [x, w])
    for rows in (1, 2, 3, 4, 16, 33):
        part = [np.ascontiguousarray(x[7 : 7 + rows]), w]
        assert same_bits(evaluate(CONTRACT, part, {"spec": spec}), np.ascontiguousarray(whole[7 : 7 + rows])), rows
        assert same_bits(compiled("contract", part, spec=spec), np.ascontiguousarray(whole[7 : 7 + rows])), rows


def test_terms_are_added_in_order_by_fused_multiply_adds() -> None:
    """Against sums of exact products, rounded once a term: of 24-bit factors they have 48 bits."""
    x, y = numbers((5, 300), "float32", 0), numbers((300, 70), "float32", 1)
    total = np.zeros((5, 70), np.float32)
    for k in range(300):
        exact = x[:, k : k + 1].astype(np.longdouble) * y[k].astype(np.longdouble)
        total = (total.astype(np.longdouble) + exact).astype(np.float32)
    assert same_bits(evaluate(CONTRACT, [x, y], {"spec": "mk,kn->mn"}), total)


def test_threads_change_no_bit() -> None:
    x, y = numbers((300, 400), "float32", 0), numbers((400, 500), "float32", 1)
    found, before = [], get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append(evaluate(CONTRACT, [x, y], {"spec": "mk,kn->mn"}))
    finally:
        set_num_threads(before)
    assert same_bits(found[0], found[1]) and same_bits(found[0], found[2])
    assert near_the_exact_product(found[0], "mk,kn->mn", [x, y])


def test_nothing_to_add_is_zero_and_nothing_to_make_is_empty() -> None:
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        x, y = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
        found = evaluate(CONTRACT, [x, y], {"spec": "mk,kn->mn"})
        assert found.shape == (m, n) and not found.any()


NOTHING = "define void @nothing() {\n  ret void\n}\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_product_says_that_it_needs_is_all_that_it_calls(dtype: str) -> None:
    """Other parts do nothing here, so a result would lack what one of them had to add."""
    target = native.host_target()
    library = Library([native.compile_object(NOTHING, target)])
    rng = np.random.default_rng(0)
    for m, n in [(m, n) for m in (1, 3, 4, 5, 7, 15, 65, 70) for n in (1, 16, 17, 47, 97, 112, 193)]:
        k = 1 << 15 if m > 64 and n > 190 else 3  # the long sum is cut into blocks for threads
        x, y = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
        for spec, right in (("ab,bc->ac", y), ("ab,cb->ac", np.ascontiguousarray(y.T))):
            routine = products._Routine(from_numpy_dtype(x.dtype))
            routine._addresses[:] = library.address("nothing")
            a, b = spec.split("->")[0].split(",")
            plan = products._plan(a, x.shape, b, right.shape, "ac", x.itemsize, True)
            out = np.full((m, n), np.nan, dtype)
            plan.add(x, right, routine, out, False)
            assert np.array_equal(out, x @ y), (m, n, k, spec)
