"""Small programs that read or change Python's state between calls give and do the same compiled as eagerly.

The programs are in ``corpus/*.txt``, one file for each family. A program has a function ``f(x)``. It may also have
``change(n)``, which runs between calls, ``look()``, which returns state to compare, and ``undo()``. ``view(results)``
selects the comparable part of results that differ by nature. A title that ends in ``| one graph`` says that the program
must have no graph break.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
import tempfile
import types
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracecomp as torch
from tests.record.corpus.reasons import OPEN

CORPUS = Path(__file__).parent / "corpus"
STEPS = (0, 0, 1, 0, 2, 0)
"""Arguments of ``change`` before each call; 0: it is not called."""


class Program(NamedTuple):
    """A program with its family, title and source."""

    family: str
    title: str
    source: str
    one_graph: bool

    @property
    def name(self) -> str:
        return f"{self.family}: {self.title}"


class Outcome(NamedTuple):
    """Results, output and warnings of calls, and the state after each."""

    results: list[Any]
    effects: list[Any]
    state: list[Any]
    compiled: Any


def programs() -> list[Program]:
    found = []
    for path in sorted(CORPUS.glob("*.txt")):
        for text in path.read_text().split("## ")[1:]:
            title, source = text.split("\n", 1)
            title, _, mark = title.partition(" | ")
            found.append(Program(path.stem, title.strip(), source, mark.strip() == "one graph"))
    return found


def run(program: Program, folder: Path, compiled: bool) -> Outcome:
    """Run the calls of a program in a fresh module."""
    name = f"corpus_program_{'compiled' if compiled else 'eager'}"
    path = folder / f"{name}.py"
    path.write_text(f"import tracecomp as torch\n{program.source}")
    linecache.checkcache(str(path))
    module: Any = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
        return _calls(module, compiled)
    finally:
        if hasattr(module, "undo"):
            module.undo()
        del sys.modules[name]


def _calls(module: Any, compiled: bool) -> Outcome:
    fn = module.f
    call = torch.compile(fn) if compiled else fn
    if compiled:
        call.quiet = True
    results, effects, state = [], [], []
    for n, step in enumerate(STEPS):
        if step and hasattr(module, "change"):
            module.change(step)
        x = torch.arange(3.0) + n
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ResourceWarning)  # comes with a collection
            try:
                results.append(described(call(x)))
            except Exception as error:  # any exception of a program
                results.append((type(error).__name__, str(error)))
        effects.append((printed.getvalue(), [(str(w.message), w.category.__name__) for w in warned]))
        state.append({k: described(v) for k, v in list(vars(module).items()) if _is_state(k, v)})
        if hasattr(module, "look"):
            state.append(described(module.look()))
    if hasattr(module, "view"):
        results = [module.view(results)]
    return Outcome(results, effects, state, call)


def _is_state(name: str, value: object) -> bool:
    if name in ("fd", "r", "w"):
        return False  # descriptors: other threads also open files
    return not name.startswith("_") and not isinstance(value, types.FunctionType | types.ModuleType)


def described(value: Any, depth: int = 6) -> Any:
    """A value in a form that compares by contents."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if depth == 0 or isinstance(value, str | bytes | int | float | complex | type(None)):
        return _text(value)
    if isinstance(value, Mapping):
        items = [(described(k, depth - 1), described(v, depth - 1)) for k, v in value.items() if k != "__builtins__"]
        return (type(value).__name__, items)
    if isinstance(value, list | tuple | deque):
        return (type(value).__name__, [described(x, depth - 1) for x in value])
    if isinstance(value, set | frozenset):
        return (type(value).__name__, sorted(map(repr, value)))
    if isinstance(value, type):
        own = {k: v for k, v in vars(value).items() if isinstance(v, bool | int | float | str | list | dict)}
        return (value.__name__, [(k, described(v, depth - 1)) for k, v in own.items() if not k.startswith("__")])
    if not type(value).__module__.startswith("corpus_"):
        return (type(value).__name__, _text(value))
    held = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        held.update(
            {k: getattr(value, k, None) for k, v in vars(kind).items() if type(v) is types.MemberDescriptorType}
        )
    return (type(value).__name__, _text(value), [(k, described(v, depth - 1)) for k, v in held.items()])


def _text(value: object) -> str:
    """The text of a value without addresses, names of temporary files and of the module."""
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/\w+|_compiled|_eager", "", repr(value))
    return "" if "0x" in text or "id='" in text else text


def breaks(compiled: Any) -> bool:
    """Whether a compiled function has had a graph break."""
    return compiled.eager_because is not None or compiled.parts is not None


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Keep the modules that a program adds from the next one."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n not in before and n.startswith("corpus_")]:
            del sys.modules[name]


def difference(program: Program, folder: Path) -> tuple[str | None, Any]:
    """Return where compiled calls of a program differ from eager ones, and the compiled function."""
    with isolated():
        eager = run(program, folder, False)
    with isolated():
        compiled = run(program, folder, True)
    for field in ("results", "effects", "state"):
        a, b = getattr(eager, field), getattr(compiled, field)
        if repr(a) != repr(b):
            return f"{field}: {a} (eager)\n{b} (compiled)", compiled.compiled
    return None, compiled.compiled


def _marked(program: Program) -> Any:
    reason = OPEN.get(program.name)
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(program, id=program.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("program", [_marked(p) for p in programs()])
def test_a_program_is_the_same_compiled(program: Program, tmp_path: Path) -> None:
    found, compiled = difference(program, tmp_path)
    assert found is None, found
    assert not program.one_graph or not breaks(compiled), compiled.explain()


def test_every_program_has_its_own_title() -> None:
    names = [p.name for p in programs()]
    assert len(names) == len(set(names)) >= 1000
    assert set(names) >= set(OPEN)
