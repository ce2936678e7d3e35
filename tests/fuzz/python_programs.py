"""Random programs of Python's own means, compiled and eager: ``python -m tests.fuzz.python_programs --minutes 10``.

A program is a function made of lines of the table below. They use the language's ways of keeping, passing on, choosing
and calling. Examples are data classes, named tuples, ``match``, generators, closures, exceptions, context managers,
properties, descriptors, partials, caches, recursion, defaults, counters, sorting and text of numbers. Tensors have
several dtypes and are views, empty or 0-d, too. After every call the results with their types, shared memory, errors
and remaining state are compared.
"""

from __future__ import annotations

import itertools
import linecache
import random
import sys
import warnings
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tracecomp as torch
from tests.fuzz.command import by_command, smallest
from tests.fuzz.python_lines import LINES, RESULTS, SETUP
from tests.fuzz.training import plain, unequal
from tests.references import by_numpy

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Call:
    """The arguments of a call."""

    seed: int
    rows: int
    n: int
    flag: bool
    shared: bool = False


@dataclass(frozen=True)
class Program:
    """Lines of the table, the results, and the calls."""

    lines: tuple[str, ...]
    result: str
    calls: tuple[Call, ...]

    def text(self) -> str:
        body = "\n".join("    " + part for line in self.lines for part in _parts(line))
        top = "    global COUNT\n    out = []\n"
        return f"def step(x, y, n, flag):\n{top}{body}\n    return {self.result}\n"


def _parts(line: str) -> list[str]:
    return line.replace("global COUNT; ", "").split("\n")


def generate(seed: int) -> Program:
    chooser = random.Random(seed)
    lines = tuple(chooser.choice(LINES) for _ in range(chooser.choice((1, 2, 3, 4, 6, 8))))
    rows, n = chooser.choice((3, 3, 4, 1, 5)), chooser.randint(0, 6)
    varies = chooser.choice(("values", "values", "n", "flag", "rows", "all"))
    calls = []
    for _ in range(chooser.choice((4, 6, 8))):
        r = chooser.choice((2, 3, 4, 5, 1, 7)) if varies in ("rows", "all") else rows
        m = chooser.choice((0, 1, 2, 3, 4, 5)) if varies in ("n", "all") else n
        f = chooser.random() < 0.5 if varies in ("flag", "all") else True
        calls.append(Call(chooser.randrange(10**6), r, m, f, chooser.random() < 0.05))
    return Program(lines, chooser.choice(RESULTS), tuple(calls))


class World:
    """A program with its module."""

    def __init__(self, p: Program) -> None:
        self.space: dict[str, Any] = {"__name__": "outsider", "__builtins__": __builtins__}
        source = SETUP + p.text()
        name = f"/nowhere/outsider_{next(_NUMBERS)}.py"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        self.space["__file__"] = name
        sys.modules.setdefault("outsider", type(sys)("outsider"))
        exec(compile(source, name, "exec"), self.space)

    def call(self, c: Call) -> list[Any]:
        rng = np.random.default_rng(c.seed)
        x = torch.tensor(rng.standard_normal((c.rows, 4)).astype(np.float32))
        y = x if c.shared else torch.tensor(rng.standard_normal((c.rows, 4)).astype(np.float32))
        try:
            result = self.space["step"](x, y, c.n, c.flag)
        except Exception as error:
            result = f"{type(error).__name__}"
        space = self.space
        left = [space[k] for k in ("LOG", "COUNT", "TABLE", "BY", "STATE", "ORDER", "NOTING", "TRIPLE", "STACK")]
        left += [sorted(space["SEEN"]), dict(space["COUNTS"]), dict(space["GROUPS"]), vars(space["STRICT"])]
        left += [vars(space["LAZY"]), *(getattr(space["SLOT"], k) for k in ("count", "t", "_level"))]
        left += [space["remember"].__defaults__[0], space["STEP"].__closure__[0].cell_contents]
        everything = [result, x, y, *left]
        found: list[Any] = []
        _tensors(everything, found)
        arrays = [t.detach().numpy() for t in found]
        same = [[bool(a.size and b.size and np.may_share_memory(a, b)) for a in arrays] for b in arrays]
        return [shown(everything), same, [[a is b for a in found] for b in found]]


def shown(v: Any) -> Any:
    """``v`` with types, strides and attributes, comparable."""
    if hasattr(v, "__dataclass_fields__"):
        return [type(v).__name__, *(shown(getattr(v, k)) for k in v.__dataclass_fields__)]
    if isinstance(v, deque):
        return [type(v).__name__, *map(shown, v)]
    if isinstance(v, dict):
        return ["dict", *([shown(k), shown(x)] for k, x in v.items())]
    if isinstance(v, list | tuple):
        return [type(v).__name__, *map(shown, v)]
    if isinstance(v, torch.Tensor):
        strides = [s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1] if v.numel() else None
        return [plain(v), strides, str(v.__dict__.get("mark"))]
    if isinstance(v, np.generic | torch.dtype | type):
        return [type(v).__name__, str(v)]
    return plain(v)


def _tensors(v: Any, found: list[Any]) -> None:
    if isinstance(v, torch.Tensor):
        if v.dtype is not torch.bfloat16:
            found.append(v)
    elif isinstance(v, dict):
        for x in v.values():
            _tensors(x, found)
    elif isinstance(v, list | tuple | deque):
        for x in v:
            _tensors(x, found)
    elif hasattr(v, "__dataclass_fields__"):
        for k in v.__dataclass_fields__:
            _tensors(getattr(v, k), found)


def check(p: Program) -> str | None:
    """The first call of ``p`` that differs from eager's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, compiled = World(p), World(p)
        verify = 2 if p.calls[0].seed % 2 else None  # half of the programs also compare their calls themselves
        compiled.space["step"] = torch.compile(compiled.space["step"], verify=verify)
        for n, c in enumerate(p.calls):
            want, got = by_numpy(eager.call)(c), compiled.call(c)
            found = unequal(got, want, False)
            if found is not None:
                return f"call {n}: {found[:600]}"
    return None


def smaller(p: Program) -> list[Program]:
    """Programs that are a little simpler than ``p``."""
    found = [replace(p, lines=p.lines[:k] + p.lines[k + 1 :]) for k in range(len(p.lines))]
    found += [replace(p, calls=p.calls[:k] + p.calls[k + 1 :]) for k in range(len(p.calls)) if p.calls[1:]]
    if p.result != RESULTS[0]:
        found.append(replace(p, result=RESULTS[0]))
    return found


def difference(seed: int) -> str | None:
    """Return the difference between compiled and eager runs of the program of a seed, reduced; None if they agree."""
    p = generate(seed)
    p, found = smallest(p, check, smaller)
    return None if found is None else f"seed {seed}:\n{p.text()}    {p.calls}\n    {found}"


if __name__ == "__main__":
    sys.exit(by_command(__doc__ or "", "programs", difference))
