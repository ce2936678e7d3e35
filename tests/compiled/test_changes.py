"""After any change between two calls, the later call gives the same as without compilation."""

from __future__ import annotations

import linecache
import os
import random
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.changes import CHANGES
from tests.references import by_numpy
from tracecomp.eager.modes import modes, module_changes

CALLS = 6
IMPORTS = """
import argparse, array, bisect, collections, contextlib, contextvars, copy, csv, ctypes, enum, functools, heapq
import importlib.util, io, itertools, logging, os, queue, random, sys, threading, types, weakref
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
import numpy as np
import tracecomp as torch
from tracecomp import nn, optim
given = None
"""


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRACECOMP_TEST", "0")
    monkeypatch.setattr(sys, "argv", sys.argv)
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    autocast = modes.autocast
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
    modes.autocast = autocast


class Case:
    """One copy of a program, with separate variables."""

    def __init__(self, entry: tuple[str, str, str, str], copy: str, tmp: Path) -> None:
        name, setup, body, self.change = entry
        text = f"{IMPORTS}\n{setup}\ndef f(x):\n{textwrap.indent(body, '    ')}\n"
        file = f"<{name}, {copy}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        self.space: dict[str, Any] = {"__name__": "__main__", "__file__": __file__, "tmp": tmp}
        torch.manual_seed(0)
        exec(compile(text, file, "exec"), self.space)
        self.fn = self.space["f"]
        self.world = self.worlds()

    @staticmethod
    def worlds() -> list[Any]:
        """Return the objects that both copies share."""
        asked = torch.is_grad_enabled(), torch.get_default_dtype(), modes.autocast
        own = {name: sys.modules[name] for name in ("own_of_changes",) if name in sys.modules}
        return [random.getstate(), np.random.get_state(), dict(os.environ), asked, sys.argv, torch.get_rng_state(), own]

    def enter(self) -> None:
        """Make what both copies share as this one left it."""
        numbers, arrays, environment, (grad, dtype, autocast), sys.argv, state, own = self.world
        random.setstate(numbers)
        np.random.set_state(arrays)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        modes.autocast = autocast
        torch.set_rng_state(state)
        sys.modules.update(own)

    def call(self, n: int) -> Any:
        self.enter()
        given = self.space["given"]
        try:
            found: Any = self.fn(torch.arange(3.0) + 0.25 * n + 0.5 if given is None else given)
        except Exception as error:
            found = type(error).__name__
        found = plain((found, self.space.get("seen")))
        if n >= 2:
            exec(f"n = {n - 1}\n{self.change}", self.space)
        self.world = self.worlds()
        return found


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.detach().numpy().tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return [(k, plain(v)) for k, v in value.items()]
    if hasattr(value, "__dict__") and not callable(value):
        return plain(vars(value))
    return [plain(v) for v in value] if hasattr(value, "__iter__") and not isinstance(value, str) else value


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("entry", CHANGES, ids=[name for name, *_ in CHANGES])
def test_after_a_change_a_call_gives_what_it_gives_without_compilation(
    entry: tuple[str, str, str, str], tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    eager, compiled = Case(entry, "eager", tmp_path / "a"), Case(entry, "compiled", tmp_path / "b")
    compiled.fn = torch.compile(compiled.fn)
    for n in range(CALLS):
        want, got = by_numpy(eager.call)(n), compiled.call(n)
        assert close(got, want), f"call {n}: {got} instead of {want}\n{compiled.fn.misses}"


def test_there_are_two_hundred_kinds() -> None:
    assert len(CHANGES) == len({name for name, *_ in CHANGES}) >= 200


def test_hooks_of_all_modules_are_noticed() -> None:
    module = torch.nn.ReLU()
    compiled = torch.compile(module)
    x = torch.ones(3)
    for _ in range(3):
        assert compiled(x).tolist() == [1] * 3
    handle = torch.nn.hooks.register_module_forward_hook(lambda m, args, out: out * 3)
    try:
        assert compiled(x).tolist() == [3] * 3
    finally:
        handle.remove()
    assert compiled(x).tolist() == [1] * 3


def test_a_module_imported_in_the_call_may_bring_a_table_of_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use of some functions imports ``nn``, whose hooks are none yet."""
    monkeypatch.setattr(module_changes, "global_hooks", [*module_changes.global_hooks])

    double = torch.compile(lambda x: x * 2)

    for n in range(4):
        assert double(torch.ones(3) + n).tolist() == [2.0 + 2 * n] * 3
        module_changes.global_hooks.append({})
    assert double.recordings == 1
