"""Shell commands of the pages run as written, from a new folder that holds the files they name."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import without_code_blocks

ROOT = Path(__file__).parents[2]
PAGES = ["CONTRIBUTING.md", "README.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))]

SERVING = re.findall(r"^(?:python -m tracecomp serve|curl) .*$", (ROOT / "docs/serving.md").read_text(), re.MULTILINE)
CI, SUITE = "installs packages; .ci/run installs the same", "runs tests that are part of the suite"
NOT_RUN = {
    "pip install .": ".ci/run builds the wheel and installs it",
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[demo]" && .venv/bin/python -m tracecomp demo': CI,
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test]" && .venv/bin/python -m pytest -q -n auto': CI,
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test,lint]"': CI,
    ".venv/bin/ruff check .": ".ci/run runs it",
    ".venv/bin/ruff format --check .": ".ci/run runs it",
    ".venv/bin/mypy": ".ci/run runs it",
    'pip install -e ".[peers,plot]"': CI,
    "pip install '.[mpi]'": CI,
    'pip install ".[onnx]"': CI,
    'pip install ".[serve]"': CI,
    **dict.fromkeys(
        (
            "pip install . transformers",
            "python examples/language_model.py",
            "TRACECOMP_LOG=recompiles python examples/language_model.py",
        ),
        "needs transformers; nightly.yml runs the example",
    ),
    **dict.fromkeys(SERVING, "tests/serve runs it with free ports"),
    "python -m benchmarks compare main HEAD --threads 1": "needs the git history; tests/benchmarks tests its parts",
    "python -m benchmarks run": "takes hours",
    "python -m benchmarks run --classes matmul softmax --engines tracecomp,torch --threads 1 --quick": "takes minutes",
    "python -m benchmarks show results.json": "needs the results of a run; tests/benchmarks tests its parts",
    "python -m benchmarks plot results.json benchmarks.png": "tests/benchmarks/test_benchmarks.py draws a plot",
    "git checkout v0.2.0": "changes the working tree",
    "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) python -m build --wheel": "tests/test_release.py builds the wheel",
    "sha256sum dist/*.whl": "tests/test_release.py compares the bytes of two builds",
    'pytest -q tests/ops -k "NAME or every"': SUITE,
    "pytest -q tests/codegen/math/test_math.py -k NAME": SUITE,
    "export TRACECOMP_NUM_THREADS=$SLURM_CPUS_PER_TASK": "needs Slurm",
    "srun python train.py": "needs Slurm",
}
"""Commands that no test runs from a page, with the reason."""

SLOW = {"docs/distributed.md", "docs/ir-language.md", "docs/numerics.md"}
"""Pages whose commands take over five seconds on a busy machine."""

PROGRAM = """
import tracecomp as torch

weight = torch.linspace(-1.0, 1.0, 640).reshape(10, 64)

model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 2))

def forward(x):
    return torch.relu(x @ weight.T)

def f(a, b=None):
    return torch.softmax(a, -1) if b is None else a @ b

function = step = softmax = f
"""
TRAINING = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
print(parser.parse_args().epochs, torch.__name__)
"""
DISTRIBUTED = """
import os

import tracecomp as torch
import tracecomp.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size() == int(os.environ.get("TRACECOMP_SHARDS", 2))
"""
SIMULATED = """
import tracecomp as torch
import tracecomp.distributed as dist
from tracecomp.distributed.simulate import step_of, write

dist.init_process_group("mpi")
compiled_step = torch.compile(lambda x: dist._functional_collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1)
for _ in range(3):
    compiled_step(torch.ones(8))
write(step_of(compiled_step), "step.json")
"""
FILES = {
    "train.py": TRAINING,
    "script.py": "import torch\nprint(torch.ones(2))\n",
    "my.sched": "register tiles\n  height   4\n",
    **dict.fromkeys(("model.py", "program.py", "file.py", "f.py", "step.py", "softmax.py"), PROGRAM),
}


def commands(page: str) -> list[str]:
    """The commands of a page's ``sh`` blocks, without comments; a line that ends with a backslash continues."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [line for line in (re.sub(r"(^|\s+)#.*", "", line) for line in lines) if line]


def in_text(page: str) -> list[str]:
    """Commands of tracecomp in the prose and tables of a page, with operands for the ellipsis."""
    text = without_code_blocks((ROOT / page).read_text())
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    found = [
        re.sub(r"^python -m ", "", s) for s in spans if re.match(r"(python -m )?tracecomp (?!torch|demo|serve)\w", s)
    ]
    found = [re.sub(r"^(tracecomp \w+) \.\.\.$", r"\1 file.py:f ...", command) for command in found]
    if page == "docs/testing.md":
        return []  # its programs have planted faults and are not in the repository
    return [re.sub(r"(--shape )?\.\.\.", "--shape 64,100", command) for command in found]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose `python` is a virtual one, so that commands may change it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    paths = [ROOT, Path(np.__file__).parents[1], sysconfig.get_paths()["purelib"]]
    return os.environ | {
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRACECOMP_NUM_THREADS": "1",
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


WITH_BLOCKS = [page for page in PAGES if set(commands(page)) - set(NOT_RUN)]


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if p in SLOW else p for p in WITH_BLOCKS]
)  # fmt: skip
def test_commands_of_blocks_run(page: str, folder: Path, environment: dict[str, str]) -> None:
    if page == "docs/distributed.md":
        (folder / "train.py").write_text(DISTRIBUTED)
        (folder / "simulated.py").write_text(SIMULATED)
        run("python simulated.py", folder, environment)
    for command in commands(page):
        if command not in NOT_RUN:
            run(command, folder, environment)


def test_a_command_that_fails_is_noticed(folder: Path, environment: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="no_such_command"):
        run("no_such_command", folder, environment)


def test_marks_of_test_commands_exist(pytestconfig: pytest.Config) -> None:
    """An unknown mark after `-m` selects no test, without an error."""
    known = {re.split(r"[:(]", line)[0] for line in pytestconfig.getini("markers")}
    for page in PAGES:
        for marks in re.findall(r"pytest[^`\n]* -m (\w+|\"[^\"]+\")", (ROOT / page).read_text()):
            assert set(re.findall(r"\w+", marks)) - {"and", "or", "not"} <= known, f"{page}: {marks}"


def test_every_exception_is_still_on_a_page() -> None:
    assert set(NOT_RUN) <= {command for page in PAGES for command in commands(page)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", sorted({command for page in PAGES for command in in_text(page)}))
def test_commands_in_the_text_run(command: str, folder: Path, environment: dict[str, str]) -> None:
    if "graph.ir" in command:
        run("python -m tracecomp trace model.py:forward --shape 8,64 -o graph.ir", folder, environment)
    if "--against" in command:
        run("python -m tracecomp report f.py:step --shape 64,100 -o old.html", folder, environment)
    if "--against" in command or re.search(r"\.py:\w+$", command):
        command += " --shape 64,100"
    run(f"python -m {command}", folder, environment)
