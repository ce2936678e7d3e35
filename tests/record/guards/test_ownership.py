"""The owner of code, told by module and distribution, in any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite
import networkx
import numpy as np
import pytest

import tracecomp
from tracecomp.base.code_origin import is_installed, is_program_file

ROOT = Path(tracecomp.__file__).parents[1]
TRAINING = """
import numpy as np
import tracecomp as tc
from tracecomp import nn, optim

def trained(compiled):
    tc.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1))
    optimizer = optim.AdamW(model.parameters())
    sizes = [3, 4]

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) * float(np.linalg.norm(sizes)) + np.mean(sizes)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = tc.compile(step) if compiled else step
    found = [run(tc.arange(6.0).reshape(2, 3) + n).item() for n in range(6)]
    if compiled:
        assert run.eager_because is None and run.parts is None, run.explain()
        assert run.recordings == 1, run.explain()
    return found

assert trained(True) == trained(False)
print(np.__file__)
"""
MODULE = """
SCALE = 2.0

def run(x):
    return x * SCALE
"""
CHANGES = """
import importlib, sys
import tracecomp as tc
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    call, x = tc.compile(module.run), tc.ones(2)
    for module.SCALE in (2.0, 2.0, 3.0, 4.0):
        assert call(x).tolist() == [module.SCALE] * 2, (name, module.SCALE)
    assert call.eager_because is None and call.parts is None, call.explain()
print("same")
"""


def run_alone(code: str, *arguments: str, path: list[Path]) -> str:
    """Run with no other places of modules than ``path`` and Python's own."""
    places = os.pathsep.join(map(str, path))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments], env={**os.environ, "PYTHONPATH": places}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def linked(folder: Path) -> Path:
    """The libraries that tracecomp needs in a plain folder, without metadata of distributions."""
    for module in (np, networkx, llvmlite):
        home = Path(str(module.__file__)).parent
        for place in (home, home.with_name(f"{home.name}.libs")):
            if place.exists():
                (folder / place.name).symlink_to(place)
    return folder


def test_a_training_step_is_one_graph_with_libraries_in_a_plain_folder(tmp_path: Path) -> None:
    printed = run_alone(TRAINING, path=[linked(tmp_path), ROOT])
    assert printed == str(tmp_path / "numpy" / "__init__.py")


def test_a_program_among_installed_libraries_is_the_users(tmp_path: Path) -> None:
    """Also if its name begins like this package's, or is that of a tool that another distribution has."""
    libraries, folder = tmp_path / "plain", tmp_path / "site-packages"
    libraries.mkdir()
    (folder / "mine").mkdir(parents=True)
    (folder / "mine-1.0.dist-info").mkdir()
    (folder / "mine" / "__init__.py").write_text(MODULE)
    for name in ("tracecomp_models", "coverage", "setuptools"):
        (folder / f"{name}.py").write_text(MODULE)
    names = ("mine", "tracecomp_models", "coverage", "setuptools")
    assert run_alone(CHANGES, *names, path=[folder, linked(libraries), ROOT]) == "same"


def test_files_of_python_and_of_libraries_around_programs() -> None:
    assert not is_program_file(os.__file__) and not is_program_file(subprocess.__file__)
    assert not is_program_file(np.__file__) and not is_program_file(networkx.__file__)
    assert not is_program_file(pytest.__file__) and is_installed(pytest.__file__)
    assert not is_program_file(tracecomp.__file__)
    assert is_program_file(str(Path(os.__file__).with_name("site-packages") / "mine.py"))
    assert is_program_file(f"{Path(os.__file__).parent}-extra/mine.py")
    assert is_program_file(__file__) and not is_installed(__file__)
