"""Does the suite notice small faults? ``python -m tests.fuzz.mutants --minutes 60 --seed 0``

Faults are planted one at a time in a copy of the passes, of scheduling and of code generation: a comparison, an
operator, a number, a condition is another one. A mutant is killed when the tests below fail or do not end. Those that
survive are printed.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tracecomp

ROOT = Path(tracecomp.__file__).parents[1]
ROOMS = ("passes/graph", "passes/fusion", "passes/schedule", "passes/nests", "passes/contraction", "passes/program",
         "codegen/kernels", "codegen/math")  # fmt: skip
KILLERS = ("tests/test_smoke.py", "tests/fuzz/test_nets.py", "tests/passes/test_bits.py", "tests/codegen/kernels",
           "tests/codegen/math", "tests/passes/graph", "tests/ops/test_native.py")  # fmt: skip
SECONDS = 600

_COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}


def faults(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Places for a fault, and what it would be; texts and annotations are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
            yield node, "another comparison"
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            yield node, "another operator"
        elif isinstance(node, ast.BoolOp):
            yield node, "and for or"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "a number more by one"
        elif isinstance(node, ast.IfExp | ast.If):
            yield node, "the other branch"


def plant(node: ast.AST) -> None:
    """Change the tree at ``node``."""
    match node:
        case ast.Compare():
            node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        case ast.BinOp():
            node.op = _OPERATORS[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case ast.Constant(value=int() as number):
            node.value = number + 1
        case ast.IfExp() | ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)


def killed(copy: Path) -> bool:
    """Whether the tests fail on the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *KILLERS]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice, end, tried, survivors = random.Random(options.seed), time.monotonic() + 60 * options.minutes, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("tracecomp", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        files = sorted(f for room in ROOMS for f in (copy / "tracecomp" / room).rglob("*.py"))
        while time.monotonic() < end:
            file = dice.choice(files)
            text = file.read_text()
            tree = ast.parse(text)
            places = list(faults(tree))
            if not places:
                continue
            node, what = dice.choice(places)
            plant(node)
            file.write_text(ast.unparse(tree))
            tried += 1
            if not killed(copy):
                survivors += 1
                print(f"survived: {file.relative_to(copy)}:{getattr(node, 'lineno', 0)}, {what}", flush=True)
            file.write_text(text)
    print(f"{tried} mutants from seed {options.seed} on, {survivors} survived")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
