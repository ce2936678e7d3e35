"""Running a script with and without compilation: what differs, how many graphs, what ran as Python and why."""

from __future__ import annotations

import contextlib
import io
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tracecomp as torch
from tests.programs.registry import Script
from tests.references import by_numpy


@dataclass
class Report:
    """``difference`` is None where the compiled script gave what the other one did."""

    difference: str | None
    recordings: int = 0
    breaks: list[str] = field(default_factory=list)


def report(script: Script, **options: Any) -> Report:
    """The script compiled, compared with the script by numpy and in eager mode; ``options`` are ``compile``'s."""
    made: list[Any] = []

    def compile(fn: Any = None) -> Any:
        made.append(torch.compile(fn, **options))
        return made[-1]

    got, eager, right = seen(script, compile), seen(script, lambda fn: fn), by_numpy(seen)(script, lambda fn: fn)
    found = Report(unequal(got, right) or unequal(got, eager))
    stack = [getattr(m, "_compiled", m) for m in made]
    while stack:
        c = stack.pop()
        found.recordings += c.recordings
        reason = c.eager_because or (c.parts.reason if c.parts is not None else None)
        if reason is not None:
            found.breaks.append(reason)
        if c.parts is not None:
            stack.extend(getattr(p, "_compiled", p) for p in c.parts.used())
    return found


def seen(script: Script, compile: Callable[[Any], Any]) -> Any:
    """Return a script's results and its output, as plain values."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    text = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(text):
        warnings.simplefilter("ignore")
        result = script(compile)
    return plain(result), text.getvalue()


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.detach().double().numpy()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return [type(value).__name__, *map(plain, value)] if isinstance(value, list | tuple) else value


def unequal(a: Any, b: Any) -> str | None:
    """Return where two results differ by more than rounding."""
    if isinstance(b, np.ndarray | float):
        scale = 1 + float(np.abs(np.nan_to_num(b, posinf=0, neginf=0)).max(initial=0))
        same = np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
        return None if same else f"{a} instead of {b}"
    if isinstance(b, dict):
        a, b = [*a.items()], [*b.items()]
    if isinstance(b, list | tuple) and len(a) == len(b):
        return next((f for x, y in zip(a, b, strict=True) if (f := unequal(x, y)) is not None), None)
    return None if type(a) is type(b) and a == b else f"{a!r} instead of {b!r}"


def shortly(reason: str) -> str:
    """A reason for the table: without places and advice."""
    places = r",?( made)? at \S+\.py:\d+(, in \w+)?| ?\((?:[^()]|\([^()]*\))+\)"
    reason = re.sub(rf"^\w+: |{places}|every call of \w+ |^the program ", "", reason)
    return re.split(r"[.:;] |\.$", reason)[0].strip()
