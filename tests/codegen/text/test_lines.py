"""The user's lines in machine code: nearly every instruction of a hot loop has one, and no instruction changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.inspect import assembly
from tracecomp.ir.loop_printer import kernel_lines
from tracecomp.ir.program import call_steps
from tracecomp.passes.building import build
from tracecomp.runtime.executable import Executable


def normalised(x: Any, w: Any) -> Any:
    h = torch.tanh(x @ w)
    e = torch.exp(h - h.amax(1, keepdim=True))
    return e / e.sum(1, keepdim=True)


def convolved(x: Any, w: Any) -> Any:
    y = nn.functional.conv2d(x, w)
    return torch.relu(y) + 1


def picked(x: Any, i: Any) -> Any:
    rows = x[i]
    return rows.cumsum(1) * 2


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (normalised, (torch.randn(64, 32), torch.randn(32, 48))),
    (convolved, (torch.randn(2, 3, 12, 12), torch.randn(8, 3, 3, 3))),
    (picked, (torch.randn(40, 24), torch.randint(0, 40, (30,)))),
]


@pytest.mark.parametrize(("fn", "args"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_instructions_of_hot_loops_have_lines(fn: Any, args: Any) -> None:
    executable = Executable(build(torch.trace(fn, *args)).program)
    text = executable.annotated
    files, total, located = assembly.files(text), 0, 0
    lines = set()
    for body in assembly.functions(text).values():
        pairs = assembly.with_lines(body, files)
        for first, last in assembly.innermost_loops([line for line, _ in pairs]):
            for line, source in pairs[first : last + 1]:
                if not line.endswith(":"):
                    total, located = total + 1, located + bool(source)
                    lines.add(source)
    assert total > 0 and located >= 0.99 * total
    first = fn.__code__.co_firstlineno
    numbers = {int(s.rpartition(":")[2]) - first for s in lines if s}
    assert {Path(s.rpartition(":")[0]).name for s in lines if s} == {Path(__file__).name} and numbers <= {1, 2, 3}


def instructions(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("\t") and not line.startswith("\t.")]


@pytest.mark.parametrize(("fn", "args"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_code_with_lines_has_the_same_instructions(fn: Any, args: Any) -> None:
    executable = Executable(build(torch.trace(fn, *args)).program)
    assert instructions(executable.annotated) == instructions(executable.assembly)
    assert "!dbg" not in executable.llvm_ir and ".loc" not in executable.assembly


def test_several_lines_of_one_kernel_are_told_apart() -> None:
    program = build(torch.trace(normalised, *PROGRAMS[0][1])).program
    found: dict[str, set[int]] = {}
    for step in call_steps(program.steps):
        for line, origin in kernel_lines(step.kernel)[1:]:
            source = program.sources.get(origin)
            for word in ("tanh", "exp", "/"):
                if f"{word}(" in line or (word == "/" and " / " in line):
                    assert source is not None, line
                    found.setdefault(word, set()).add(source.line - normalised.__code__.co_firstlineno)
    assert found == {"tanh": {1}, "exp": {2}, "/": {3}}


def test_paths_may_hold_any_letters(tmp_path: Path) -> None:
    path = tmp_path / 'a "quoted" näme.py'
    path.write_text("def f(x):\n    return x * 3 + 1\n")
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    executable = Executable(build(torch.trace(space["f"], torch.ones(100))).program)
    assert ".loc" in executable.annotated
