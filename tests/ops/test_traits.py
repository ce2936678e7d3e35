"""Traits that records claim, checked on their samples bit by bit.

``associative`` is claimed for integers and bools; ``increasing`` up to a few ULP; ``exact`` reductions give the same
in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import Case, samples_of
from tracecomp.ir.op import OPS, Op

PLAIN = {"commutative", "associative", "idempotent", "involution", "increasing", "exact", "costly", "overlapping"}
VALUED = {"identity", "right_identity"}


def having(trait: str) -> list[Any]:
    return [pytest.param(op, id=op.name) for op in OPS.values() if trait in {t.split(":")[0] for t in op.traits}]


def cases(op: Op) -> Iterator[Case]:
    """Samples with elements, real ones: no pass that reads traits meets complex numbers."""
    return (c for c in samples_of(op) if c.arrays[0].size and c.arrays[0].dtype.kind != "c")


def run(op: Op, *arrays: Any, **attrs: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(op.impl(*arrays, **attrs))


def same_bits(a: Any, b: Any, what: str) -> None:
    """Equal bit by bit, any NaN being equal to any."""
    assert a.dtype == b.dtype and a.shape == b.shape, what
    np.testing.assert_array_equal(a, b, err_msg=what)
    if a.dtype.kind == "f":
        number = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number], err_msg=what)


def test_every_trait_is_known() -> None:
    for op in OPS.values():
        assert {t for t in op.traits if ":" not in t} <= PLAIN, op.name
        assert {t.split(":")[0] for t in op.traits if ":" in t} <= VALUED, op.name


LOOKING = [op for op in OPS.values() if op.kind == "view" and op.name != "reinterpret"]  # elements are the operand's


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in LOOKING])
def test_overlapping_views_see_elements_several_times(op: Op) -> None:
    repeated = False
    for case in samples_of(op):
        like = case.arrays[0]
        x = np.arange(like.size, dtype=np.float64).reshape(like.shape)
        x = x + 1j * (x + 0.5) if like.dtype.kind == "c" else x
        seen = op.impl(x, **case.attrs)
        repeated |= np.unique(seen).size < seen.size
    assert repeated == ("overlapping" in op.traits)


@pytest.mark.parametrize("op", having("commutative"))
def test_commutative(op: Op) -> None:
    for case in cases(op):
        a, b = case.arrays
        same_bits(run(op, a, b), run(op, b, a), str(case))


@pytest.mark.parametrize("op", having("associative"))
def test_associative_on_integers(op: Op) -> None:
    for case in cases(op):
        a, b = case.arrays
        if a.dtype.kind != "f":
            c = np.flip(b)
            same_bits(run(op, run(op, a, b), c), run(op, a, run(op, b, c)), str(case))


@pytest.mark.parametrize("op", having("idempotent"))
def test_idempotent(op: Op) -> None:
    for case in cases(op):
        a = case.arrays[0]
        if len(case.arrays) == 2:
            same_bits(run(op, a, a), a, str(case))
        else:
            once = run(op, a)
            same_bits(run(op, once), once, str(case))


@pytest.mark.parametrize("op", having("involution"))
def test_involution(op: Op) -> None:
    for case in cases(op):
        a = case.arrays[0]
        same_bits(run(op, run(op, a, **case.attrs), **case.attrs), a, str(case))


@pytest.mark.parametrize("op", having("increasing"))
def test_increasing(op: Op) -> None:
    for case in cases(op):
        y = run(op, np.sort(case.arrays[0].reshape(-1)))
        y = y[~np.isnan(y)]
        low, high = y[:-1], y[1:]
        with np.errstate(all="ignore"):
            close = np.abs(high - low) <= 4 * np.spacing(np.abs(low))
        assert np.all((high >= low) | close), str(case)


@pytest.mark.parametrize("op", having("exact"))
def test_exact_reductions_do_not_depend_on_order(op: Op) -> None:
    for case in cases(op):
        axes = case.attrs["axes"]
        same_bits(run(op, case.arrays[0], axes=axes), run(op, np.flip(case.arrays[0], axes), axes=axes), str(case))


@pytest.mark.parametrize("op", having("identity") + having("right_identity"))
def test_identities_keep_every_bit(op: Op) -> None:
    trait = next(t for t in op.traits if ":" in t)
    for case in cases(op):
        a = case.arrays[0]
        value = float(trait.split(":")[1])
        neutral = np.asarray(value).astype(a.dtype)
        same_bits(run(op, a, neutral), a, f"{case} {trait}")
        if trait.startswith("identity"):
            same_bits(run(op, neutral, a), a, f"{case} {trait}")
