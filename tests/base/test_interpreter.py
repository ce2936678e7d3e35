"""Pythons that are not tested: newer ones, other builds. They are refused, or nothing relies on their layouts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tracecomp
from tracecomp.base import interpreter

ROOT = Path(tracecomp.__file__).parents[1]
ASKS = re.compile(r"\bsys\.version_info|import version_info|hexversion|version_tuple|MAGIC_NUMBER")


def test_one_module_asks_for_the_version() -> None:
    own = {Path(interpreter.__file__), Path(__file__)}
    files = [p for room in ("tracecomp", "tracecomp_runtime", "tests") for p in (ROOT / room).rglob("*.py")]
    assert [str(p) for p in files if p not in own and ASKS.search(p.read_text())] == []


def test_this_python_is_tested() -> None:
    version = "{}.{}".format(*sys.version_info)
    assert (version in interpreter.BYTECODES.values()) == interpreter.bytecode_is_known()


def test_the_workflow_and_the_classifiers_name_the_same_versions() -> None:
    versions = [*interpreter.BYTECODES.values()]
    matrix = re.findall(r"python: (\[.*\])", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert [json.loads(line) for line in matrix] == [versions]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert classified == versions


@pytest.mark.parametrize(("flags", "words"), [("t", "a free-threaded build"), ("", "a build with headers of 32 bytes")])
def test_other_headers_are_refused(flags: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "object", SimpleNamespace(__basicsize__=32), raising=False)
    monkeypatch.setattr(sys, "abiflags", flags)
    with pytest.raises(ImportError, match=f"{words} of Python .*Use the default build of CPython 3.11 to 3.14"):
        interpreter.require_known_headers()


NEWER = 'import importlib.util; importlib.util.MAGIC_NUMBER = b"\\xff\\xff\\r\\n"'
DEBUG = "import sys; sys.gettotalrefcount = lambda: 0"
PROGRAM = """
import tracecomp as tc
from tracecomp import nn, optim
from tracecomp.compiled.native_call import call_code
from tracecomp.record.frames import STACK_IS_KNOWN
from tracecomp.record.guards.class_versions import class_version

class Settings:
    scale = 2.0

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = optim.Adam(model.parameters())
start = {name: value.clone() for name, value in model.state_dict().items()}

def step(x):
    optimizer.zero_grad()
    loss = (model(x) * Settings.scale).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss

def run(step):
    global optimizer
    model.load_state_dict(start)
    optimizer = optim.Adam(model.parameters())
    found = []
    for n in range(12):
        Settings.scale = 2.0 + n // 6
        found.append(step(tc.arange(6.0).reshape(2, 3) + n).item())
    return found

compiled = tc.compile(step)
compiled.quiet = True
assert run(step) == run(compiled)
captured = compiled.eager_because is None and compiled.parts is None
print(STACK_IS_KNOWN, captured, call_code() is None, class_version(Settings))
"""


@pytest.mark.parametrize(
    ("build", "printed"), [(NEWER, "False False True 0"), (DEBUG, "True True True 0")], ids=["newer", "debug"]
)
def test_other_pythons_check_in_python(build: str, printed: str) -> None:
    """Nothing is recorded from unknown instructions; a debug build records, with all guards in Python."""
    code = f"{build}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed, done.stderr
