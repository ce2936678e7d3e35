"""One random program run in every way, and the smallest one that shows a difference."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import tracecomp
from tests.fuzz.programs import Case, Program, smaller
from tracecomp.base.errors import CaptureError

CALLS = 4
HAS_TORCH = importlib.util.find_spec("torch") is not None
WAYS: dict[str, Callable[[Any], Any]] = {
    "native": lambda f: tracecomp.compile(f),
    "interpret": lambda f: tracecomp.compile(f, backend="interpret"),
}


STRICTER = "more than one element of the written-to tensor"
"""Writes to equal elements, which only eager mode refuses."""

refusals: Counter[str] = Counter()
"""Programs that were refused, by what the refusal begins with."""


def check(p: Program, ways: tuple[str, ...] = ("torch", *WAYS)) -> str | None:
    """The first difference between eager and torch, or compiled and eager; None when there is none."""
    eager = _calls(Case(tracecomp, p))
    if "torch" in ways and HAS_TORCH:
        import torch

        found = _difference(eager, _calls(Case(torch, p)), exact=False)
        if found is not None:
            return f"eager and torch: {found}"
    for way in ways:
        if way != "torch":
            found = _difference(_calls(Case(tracecomp, p, WAYS[way])), eager, exact=True)
            if found is not None:
                return f"{way} and eager: {found}"
    return None


def _calls(case: Case) -> list[Any]:
    found = []
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for k in range(CALLS):
            found.append(case.call(k))
            if isinstance(found[-1], tuple):
                break
    return found


def _difference(got: list[Any], want: list[Any], exact: bool) -> str | None:
    for k, (a, b) in enumerate(zip(got, want, strict=False)):
        if isinstance(a, tuple) or isinstance(b, tuple):
            kinds = [x[0] if isinstance(x, tuple) else None for x in (a, b)]
            if kinds[0] is CaptureError:
                refusals[re.sub(r"\(?[\[s].*", "", a[1].split("every call of program ")[-1])] += 1
                return None
            if not exact and STRICTER in str(a):
                return None
            if kinds[0] is not kinds[1]:
                return f"call {k}: {_told(a)} instead of {_told(b)}"
            return None
        for part, x, y in zip(("tensors", "sharing", "writes", "derivative", "after a write"), a, b, strict=True):
            if part == "derivative" and isinstance(y, tuple):
                continue  # eager mode refuses: a history was used up, or its saved tensors overwritten
            # The second derivative of a call sums in another order: its last bits may differ.
            found = _unequal(x, y, exact and part != "derivative")
            if found is not None:
                return f"call {k}, {part}: {found}"
    return None


def _told(x: Any) -> str:
    return f"{x[0].__name__}: {x[1][:200]}" if isinstance(x, tuple) else "a result"


def _unequal(a: Any, b: Any, exact: bool) -> str | None:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        if exact:
            same = a.tobytes() == b.tobytes()
        else:
            loose = a.dtype == np.float16
            same = np.allclose(a, b, rtol=2e-2 if loose else 1e-4, atol=1e-2 if loose else 1e-5, equal_nan=True)
        return None if same else f"{a.tolist()} instead of {b.tolist()}"
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{a} instead of {b}"
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            found = _unequal(x, y, exact)
            if found is not None:
                return f"[{n}] {found}"
        return None
    if not exact and (a is None or b is None):  # a zero function's derivative may be a constant
        rest = a if b is None else b
        return None if rest is None or (isinstance(rest, np.ndarray) and not rest.any()) else f"{a} instead of {b}"
    return None if a is b or (a == b and type(a) is type(b)) else f"{a} instead of {b}"


def shrink(p: Program, ways: tuple[str, ...]) -> tuple[Program, str]:
    """The smallest program found that differs as ``p`` does."""
    found = check(p, ways) or ""
    kind = found.split(":")[0]
    going = True
    while going:
        going = False
        for q in smaller(p):
            try:
                said = check(q, ways)
            except Exception:
                continue
            if said is not None and said.split(":")[0] == kind:
                p, found, going = q, said, True
                break
    return p, found
