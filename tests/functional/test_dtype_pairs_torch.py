"""Pairs of dtypes: functions reject those that PyTorch rejects, with its type of exception."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "complex64")
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "prelu": lambda t, a, b: t.nn.functional.prelu(a, b[:1]),
    "vecdot": lambda t, a, b: t.linalg.vecdot(a, b),
    "dist": lambda t, a, b: t.dist(a, b),
    "isin": lambda t, a, b: t.isin(a, b),
    "isin of a bool": lambda t, a, b: t.isin(a, True),
    "cosine_similarity": lambda t, a, b: t.nn.functional.cosine_similarity(a, b, dim=0),
    "searchsorted": lambda t, a, b: t.searchsorted(a, b),
    "mse_loss": lambda t, a, b: t.nn.functional.mse_loss(a, b),
    "kl_div": lambda t, a, b: t.nn.functional.kl_div(a, b, reduction="sum"),
    "gather": lambda t, a, b: t.gather(a, 0, b),
    "masked_select": lambda t, a, b: t.masked_select(a, b),
    "trapezoid": lambda t, a, b: t.trapezoid(a, b),
    "vander": lambda t, a, b: t.vander(a),
    "hardtanh": lambda t, a, b: t.nn.functional.hardtanh(a),
    "svdvals": lambda t, a, b: t.linalg.svdvals(a[None]),
    "argmin": lambda t, a, b: t.argmin(a),
    "argmax along a dim": lambda t, a, b: t.argmax(a, 0),
    "dot": lambda t, a, b: t.dot(a, b),
    "lerp": lambda t, a, b: t.lerp(a, b, 0.5),
    "bucketize": lambda t, a, b: t.bucketize(a, b),
    "copysign": lambda t, a, b: t.copysign(a, b),
    "heaviside": lambda t, a, b: t.heaviside(a, b),
    "index_add": lambda t, a, b: t.index_add(a, 0, t.tensor([0, 1]), b),
    "scatter": lambda t, a, b: t.scatter(a, 0, t.tensor([0, 1]), b),
    "where": lambda t, a, b: t.where(a.bool(), a, b),
    "clamp": lambda t, a, b: t.clamp(a, b),
    "add_": lambda t, a, b: a.clone().add_(b),
    "div_": lambda t, a, b: a.clone().div_(b),
    "sub": lambda t, a, b: t.sub(a, b),
    "bitwise_or": lambda t, a, b: t.bitwise_or(a, b),
    "linear": lambda t, a, b: t.nn.functional.linear(a, b),
}


def outcome(library: Any, call: Callable[..., Any], first: str, second: str) -> Any:
    operands = (library.ones(2).to(getattr(library, name)) for name in (first, second))
    try:
        return str(call(library, *operands).dtype)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("name", CALLS)
def test_pairs_of_dtypes(name: str) -> None:
    for first, second in product(DTYPES, DTYPES):
        theirs, own = (outcome(library, CALLS[name], first, second) for library in (torch, tracecomp))
        if own is NotImplementedError and theirs is RuntimeError:  # which the former is
            continue
        assert own == theirs, (first, second)
