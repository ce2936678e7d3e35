"""Random programs whose world changes between calls: ``python -m tests.fuzz.changing --minutes 10 --seed 0``.

A program consists of rows of ``tests/compiled/changes.py``, each in a separate module. One compiled function calls them
in a random way. Between calls some of the changes are made, in random order, with other numbers. Calls differ in their
values, sometimes in dtype, size and thread.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tracecomp as torch
from tests.compiled.changes import CHANGES
from tests.compiled.test_changes import IMPORTS, Case, close, plain
from tests.fuzz.command import by_command, smallest
from tests.references import by_numpy

ROWS = {name: (setup, body, change) for name, setup, body, change in CHANGES}
CALLS = 8
WAYS = {
    "in line": "out.append(p{k}(x{k}))",
    "twice": "out.append((p{k}(x{k}), p{k}(x{k} + 1)))",
    "in a loop": "for step in range(2):\n    out.append(p{k}(x{k} * (step + 1)))",
    "without gradients": "with torch.no_grad():\n    out.append(p{k}(x{k}))",
    "in a lambda": "out.append((lambda v: p{k}(v))(x{k}))",
    "in a try": "try:\n    out.append(p{k}(x{k}))\nfinally:\n    out.append(x{k} * 2)",
    "by a method": "out.append(holder.call(p{k}, x{k}))",
    "by a module": "out.append(module(p{k}, x{k}))",
    "of what came before": "out.append(p{k}(x{k} + (out[-1] * 0 if out and isinstance(out[-1], torch.Tensor) else 0)))",
    "where a value says so": "out.append(p{k}(x{k}) if x{k}.sum() > 2 else x{k} * 3)",
    "before a write": "y = x{k}.clone()\nout.append(p{k}(y))\ny.zero_()",
}
AROUND = """
class Holder:
    def call(self, f, x):
        return f(x)

class Module(nn.Module):
    def forward(self, f, x):
        return f(x)

holder, module = Holder(), Module()
"""


@dataclass(frozen=True)
class Call:
    """``changes`` are made before it: the number of a row, and of its change. ``apart``: on a separate thread."""

    changes: tuple[tuple[int, int], ...]
    dtype: str
    size: int
    apart: bool


@dataclass(frozen=True)
class Program:
    """Rows of the table, each with the way it is called."""

    rows: tuple[tuple[str, str], ...]
    calls: tuple[Call, ...]


def generate(seed: int) -> Program:
    """The program of ``seed``."""
    r = random.Random(seed)
    rows = tuple((r.choice(list(ROWS)), r.choice(list(WAYS))) for _ in range(r.choice((1, 2, 2, 3))))
    calls = []
    dtypes = ("float32", "float32", r.choice(("float64", "float16", "bfloat16"))) if r.random() < 0.3 else ("float32",)
    sizes = (3, 3, r.choice((0, 1, 2, 5))) if r.random() < 0.3 else (3,)
    for k in range(CALLS):
        chosen = r.sample(range(len(rows)), r.choice((0, 1, len(rows)))) if k >= r.choice((1, 3)) else []
        changes = tuple((n, r.randint(1, 4)) for n in chosen)
        calls.append(Call(changes, r.choice(dtypes), r.choice(sizes), r.random() < 0.1))
    return Program(rows, tuple(calls))


class World:
    """One copy of a program, with separate state."""

    def __init__(self, p: Program, copy: str, tmp: Path) -> None:
        self.p = p
        space: dict[str, Any] = {"__name__": "__main__", "__file__": __file__}
        self.parts = []
        for k, (name, _) in enumerate(p.rows):
            folder = tmp / f"{copy}{k}"
            folder.mkdir()
            part = {"__name__": "__main__", "__file__": __file__, "tmp": folder}
            setup, body, _ = ROWS[name]
            run(f"{IMPORTS}\n{setup}\ndef f(x):\n{textwrap.indent(body, '    ')}\n", f"<{name}, {copy}{k}>", part)
            self.parts.append(part)
            space[f"p{k}"] = part["f"]
        body = "".join(WAYS[way].format(k=k) + "\n" for k, (_, way) in enumerate(p.rows))
        given = ", ".join(f"x{k}" for k in range(len(p.rows)))
        text = f"{IMPORTS}{AROUND}\ndef f({given}):\n    out = []\n{textwrap.indent(body, '    ')}    return out\n"
        run(text, f"<{copy}>", space)
        self.fn: Callable[..., Any] = space["f"]
        self.world = Case.worlds()

    def call(self, n: int) -> Any:
        """Return the results of call ``n`` and the state that programs have changed, or the error's class."""
        c = self.p.calls[n]
        Case.enter(self)  # type: ignore[arg-type]
        for k, value in c.changes:
            with contextlib.suppress(Exception):  # a second time some cannot be made
                exec(f"n = {value}\n{ROWS[self.p.rows[k][0]][2]}", self.parts[k])
        x = (torch.arange(float(c.size)) + 0.25 * n + 0.5).to(getattr(torch, c.dtype))
        args = [x * 1 if part["given"] is None else part["given"] for part in self.parts]
        found = in_thread(self.fn, args) if c.apart else outcome(self.fn, args)
        seen = plain((found, [part.get("seen") for part in self.parts], args))
        self.world = Case.worlds()
        return seen


def run(text: str, file: str, space: dict[str, Any]) -> None:
    """Execute a program's text so that its source is found."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    torch.manual_seed(0)
    exec(compile(text, file, "exec"), space)


def outcome(fn: Callable[..., Any], args: list[Any]) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__


def in_thread(fn: Callable[..., Any], args: list[Any]) -> Any:
    found: list[Any] = []
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()

    def target() -> None:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        found.append(outcome(fn, args))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join()
    return found[0]


def check(p: Program) -> str | None:
    """The first call of ``p`` that differs from eager's."""
    modes = Case.worlds()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager, compiled = World(p, "eager", Path(folder)), World(p, "compiled", Path(folder))
            compiled.fn = torch.compile(compiled.fn)
            for n in range(len(p.calls)):
                want, got = by_numpy(eager.call)(n), compiled.call(n)
                if not close(got, want):
                    return f"call {n}: {got} instead of {want}\n    {compiled.fn.misses[-1:]}"  # type: ignore[attr-defined]
        finally:
            holder = type("Modes", (), {"world": modes})()
            Case.enter(holder)
            for file in [f for f in linecache.cache if f.startswith("<")]:
                del linecache.cache[file]
    return None


def smaller(p: Program) -> list[Program]:
    """Programs that are a little simpler than ``p``."""
    found = [replace(p, calls=p.calls[:k] + p.calls[k + 1 :]) for k in range(len(p.calls)) if p.calls[1:]]
    for k in range(len(p.rows)) if p.rows[1:] else ():
        calls = [replace(c, changes=tuple((i - (i > k), n) for i, n in c.changes if i != k)) for c in p.calls]
        found.append(Program(p.rows[:k] + p.rows[k + 1 :], tuple(calls)))
    for k, (name, way) in enumerate(p.rows):
        if way != "in line":
            found.append(replace(p, rows=(*p.rows[:k], (name, "in line"), *p.rows[k + 1 :])))
    for k, c in enumerate(p.calls):
        simpler = [replace(c, changes=c.changes[:j] + c.changes[j + 1 :]) for j in range(len(c.changes))]
        simpler += [replace(c, dtype="float32", size=3, apart=False)]
        found += [replace(p, calls=(*p.calls[:k], d, *p.calls[k + 1 :])) for d in simpler if d != c]
    return found


def difference(seed: int) -> str | None:
    """Return the difference between compiled and eager runs of the program of a seed, reduced; None if they agree."""
    p = generate(seed)
    p, found = smallest(p, check, smaller)
    return None if found is None else f"seed {seed}: {p}\n    {found}"


if __name__ == "__main__":
    sys.exit(by_command(__doc__ or "", "programs", difference))
