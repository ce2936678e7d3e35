"""Compiled graphs that another process finds on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
import tracecomp as torch
from tracecomp import nn

@torch.compile
def f(x, i):
    return torch.cumsum(x, 0).sin()[i] + torch.tensor([1.0, 2.0, 3.0])

x, i = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2])
results = [f(x, i).tolist() for _ in range(3)]
assert results[0] == f.fn(x, i).tolist() and np.allclose(results[1], results[0]) and results[1] == results[2]

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

@torch.compile
def step():
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

assert step().item() > step().item() > step().item()
late = {"codegen.kernels.program", "passes.building", "passes.fusion", "passes.nests", "passes.pipeline",
        "passes.schedule"}
print(*sorted(({f"tracecomp.{m}" for m in late} | {"llvmlite", "networkx"}) & set(sys.modules)))
"""


def run(folder: Path, program: str = PROGRAM, *arguments: str) -> list[str]:
    """Return what a process running ``program`` prints: the planning and code generation modules that it loads."""
    # Eager operators build separate programs, which are not counted here.
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(folder), "TRACECOMP_EAGER": "numpy"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def builds(folder: Path, program: str = PROGRAM) -> bool:
    return "tracecomp.passes.building" in run(folder, program)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a first process leaves."""
    folder = tmp_path_factory.mktemp("first")
    assert builds(folder)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    """A separate folder with the same contents."""
    return Path(shutil.copytree(first, tmp_path / "cache"))


def test_a_second_process_neither_plans_nor_generates(folder: Path) -> None:
    assert run(folder) == []


def test_a_damaged_entry_is_built_again(folder: Path) -> None:
    for path in folder.glob("*.o"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(bytes(data))
    assert builds(folder)


def test_other_constants_are_another_program(folder: Path) -> None:
    assert builds(folder, PROGRAM.replace("[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]"))


def test_other_settings_are_another_program(folder: Path) -> None:
    setting = "import os; os.environ['TRACECOMP_FUSION'] = '0'\n"
    assert builds(folder, setting + PROGRAM)


FILE = """
import sys
import numpy as np
import tracecomp as torch
from tracecomp.compiled.program_files import code

@torch.compile
def f(x, i):
    return torch.cumsum(x, 0).sin()[i] + torch.tensor([1.0, 2.0, 3.0])

x, i = torch.arange(18.0).reshape(6, 3), torch.tensor([3, 2])
if sys.argv[1] == "save":
    sizes = {"x": {0: torch.export.Dim("n", min=4, max=8)}}
    f.save(sys.argv[2], x[:4], i, kind="graph", dynamic_shapes=sizes)
compiled, make = [], code._compiled
code._compiled = lambda *given: compiled.append(given) or make(*given)
print(np.asarray(torch.load_program(sys.argv[2]).program(x.numpy(), i.numpy())).tobytes().hex(), len(compiled))
"""


def test_the_code_of_a_program_file_is_found_by_the_next_process(tmp_path: Path) -> None:
    (bits, count), again = (run(tmp_path, FILE, how, str(tmp_path / "f.tcp")) for how in ("save", "load"))
    assert count == "1" and again == [bits, "0"]
