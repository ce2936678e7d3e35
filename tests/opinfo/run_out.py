"""Compare what tracecomp and torch do with ``out=``, for every operator of torch's sample database that takes it.

    python -m tests.opinfo.run_out [--names add,sum] [--compiled]

For each result of an operator, ``out`` gets every dtype, and then shapes, strides and memory that do not fit. The
exception's type, the dtype, shape and values of ``out``, warnings and the results are compared.
"""

from __future__ import annotations

import argparse
import collections
import warnings
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import tracecomp
from tests.opinfo.run_opinfo import (
    ORDER,
    TIES,
    Unsupported,
    convert,
    function,
    in_scope,
    is_exact,
    takes,
    tensor_difference,
)

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64",
    "complex128",
)  # fmt: skip
SAMPLED = (torch.float32, torch.int64, torch.bool, torch.complex64)
Make = Callable[[Any], Any]


BESIDE = ("nn.functional.", "narrow_copy", "ormqr")
"""Operators of torch that write elsewhere if ``out`` has gaps, or accept it by accident."""


def takes_out(op: Any) -> bool:
    """Whether ``out=`` of this operator is compared."""
    fits = op.supports_out and not op.name.startswith(BESIDE) and op.name not in ORDER
    return fits and in_scope(op) and function(op.name) is not None


def sample_of(op: Any, dtype: torch.dtype) -> tuple[Any, list[torch.Tensor], bool] | None:
    """The first sample whose results are tensors with elements, those, and whether they are several."""
    torch.manual_seed(0)
    for _, sample in zip(range(8), op.sample_inputs("cpu", dtype), strict=False):
        try:
            found = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        several = isinstance(found, list | tuple)
        results = list(found) if several else [found]
        if all(isinstance(r, torch.Tensor) and r.numel() for r in results):
            return sample, results, several
    return None


def outs(results: list[torch.Tensor]) -> Iterator[tuple[str, Make]]:
    """Ways to make what ``out`` is given, by name: functions of a library."""

    def each(make: Callable[[Any, torch.Tensor, Any], Any], n: int | None = None) -> Make:
        def made(t: Any) -> list[Any]:
            return [
                make(t, r, _dtype(t, r)) if n in (None, k) else t.zeros(tuple(r.shape), dtype=_dtype(t, r))
                for k, r in enumerate(results)
            ]

        return made

    def of_type(name: str) -> Callable[[Any, torch.Tensor, Any], Any]:
        return lambda t, r, d: t.zeros(tuple(r.shape), dtype=getattr(t, name))

    for n in range(len(results)):
        for name in DTYPES:
            yield f"{name} for result {n}", each(of_type(name), n)
    yield "no elements", each(lambda t, r, d: t.zeros(0, dtype=d))
    yield "other elements", each(lambda t, r, d: t.zeros((2, *r.shape), dtype=d))
    yield "fewer elements", each(lambda t, r, d: t.zeros((1,) * (r.ndim + 1), dtype=d))
    yield "part of others", each(lambda t, r, d: t.zeros((3, *r.shape), dtype=d)[1])
    yield "turned", each(lambda t, r, d: t.zeros(tuple(r.shape)[::-1], dtype=d).permute(tuple(range(r.ndim)[::-1])))
    yield "expanded", each(lambda t, r, d: t.zeros((1,) * r.ndim, dtype=d).expand(tuple(r.shape)))
    yield "every other", each(lambda t, r, d: t.zeros((*r.shape, 2), dtype=d)[..., 0])
    yield "requires grad", each(lambda t, r, d: t.zeros(tuple(r.shape), dtype=d).requires_grad_(d.is_floating_point))
    yield "no tensor", each(lambda t, r, d: "text")
    yield "one more", lambda t: [*each(lambda t, r, d: t.zeros(tuple(r.shape), dtype=d))(t), t.zeros(1)]


def _dtype(t: Any, r: torch.Tensor) -> Any:
    return getattr(t, str(r.dtype).removeprefix("torch."))


def outcome(fn: Any, args: Any, kwargs: Any, out: list[Any], named: bool) -> tuple[Any, ...]:
    """Return the effects of a call: its exception, or the outs after it, its warnings, and whether it returns them."""
    given = out[0] if len(out) == 1 and not named else tuple(out)
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            found = fn(*args, **kwargs, out=given)
        except Exception as error:  # both libraries must raise the same error
            return type(error), str(error)
    found = list(found) if isinstance(found, list | tuple) else [found]
    same = len(found) == len(out) and all(a is b for a, b in zip(found, out, strict=True))
    return out, any("resize" in str(w.message) for w in said), same


def compare(
    op: Any, dtype: torch.dtype, compiled: bool, tried: Container[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the names of the values for ``out``, all or those that are in ``tried``, with the difference."""
    found = sample_of(op, dtype)
    if found is None:
        return
    sample, results, several = found
    args = (sample.input, *sample.args)
    fn = function(op.name, op.variant_test_name)
    exact = is_exact(op.name) and op.name not in TIES
    for name, make in outs(results):
        if (several and name == "one more") or (tried is not None and name not in tried):
            continue
        try:
            memo: dict[int, Any] = {}
            ours, options = convert(args, memo), convert(sample.kwargs, memo)
        except Unsupported:
            return
        run = fn
        if compiled:
            run = tracecomp.compile(lambda *args, out, **kw: fn(*args, out=out, **kw))
            outcome(run, ours, options, make(tracecomp), several)
        want = outcome(op, args, sample.kwargs, make(torch), several)
        got = outcome(run, ours, options, make(tracecomp), several)
        text = difference(want, got, exact)
        if text is not None:
            yield name, text


def difference(want: tuple[Any, ...], got: tuple[Any, ...], exact: bool) -> str | None:
    """Return a description of the difference between two outcomes."""
    if isinstance(want[0], type) or isinstance(got[0], type):
        if want[0] is got[0] or "single memory location" in str(got[1]):  # torch writes such memory in no order
            return None
        return f"{said(got)} instead of {said(want)}"
    for a, b in zip(want[0], got[0], strict=True):
        half = a.dtype in (torch.bfloat16, torch.float16)  # numpy has no bfloat16
        text = tensor_difference(a.float() if half else a, b.float() if half else b, 1e-2 if half else 1e-4, exact)
        if text:
            return text
    if want[1] and not got[1]:
        return "no warning"
    return None if want[2] == got[2] else "returns something else"


def said(found: tuple[Any, ...]) -> str:
    return (
        f"{found[0].__name__}: {found[1].splitlines()[0][:150] if found[1] else ''}"
        if isinstance(found[0], type)
        else "a result"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="comma-separated OpInfo names (all by default)")
    parser.add_argument("--compiled", action="store_true", help="the second call of the compiled function")
    options = parser.parse_args()
    names = set(filter(None, options.names.split(",")))
    total: collections.Counter[bool] = collections.Counter()
    for op in op_db:
        if not takes_out(op) or (names and op.name not in names):
            continue
        for dtype in SAMPLED:
            if takes(op, dtype):
                for name, text in compare(op, dtype, options.compiled):
                    print(f"{op.name}/{op.variant_test_name} {str(dtype)[6:]}: {name}: {text}", flush=True)
                    total[False] += 1
    print(f"{total[False]} differences")


if __name__ == "__main__":
    main()
