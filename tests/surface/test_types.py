"""Type checkers and editors on the package: a program that they accept, mistakes that they see, names that they
complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.surface.programs import training

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
MARKED = [n for n, line in enumerate((PROGRAMS / "mistakes.py").read_text().splitlines(), 1) if "# error" in line]


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed: pip install '.[lint]'")


def lines_with_errors(report: str, pattern: str) -> set[tuple[str, int]]:
    return {(Path(m[1]).name, int(m[2])) for m in re.finditer(pattern, report, re.MULTILINE)}


WANTED = {("mistakes.py", n) for n in MARKED}


def test_the_typical_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    training.main()
    assert "torch.Size([])" in capsys.readouterr().out


@needs("mypy")
def test_mypy_strict_accepts_the_typical_program_and_sees_every_mistake() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", str(PROGRAMS / "training.py"), str(PROGRAMS / "mistakes.py")]
    report = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert lines_with_errors(report, r"^(\S+?):(\d+): error") == WANTED, report


@needs("basedpyright")
def test_pyright_accepts_the_typical_program_and_sees_every_mistake(tmp_path: Path) -> None:
    config = {"include": [str(PROGRAMS)], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert lines_with_errors(report, r"^\s+(\S+?):(\d+):\d+ - error") == WANTED, report


@needs("jedi")
@pytest.mark.parametrize(
    ("typed", "wanted", "argument"),
    [
        ("torch.softma", "softmax", None),
        ("torch.softmax(", None, "dim"),
        ("x.mea", "mean", None),
        ("x.mean(", None, "keepdim"),
        ("x.add_(", None, "alpha"),
        ("torch.linalg.in", "inv", None),
        ("torch.linalg.inv(", None, "A"),
        ("torch.conv2", "conv2d", None),
        ("F.cross_entrop", "cross_entropy", None),
        ("F.cross_entropy(", None, "label_smoothing"),
        ("torch.fft.rff", "rfft", None),
        ("torch.nn.Linea", "Linear", None),
        ("torch.optim.Ada", "AdamW", None),
        ("torch.softmax(x, 0).argma", "argmax", None),
        ("x.max(0).ind", "indices", None),
    ],
)
def test_an_editor_completes(typed: str, wanted: str | None, argument: str | None) -> None:
    import jedi

    head = "import tracecomp as torch\nfrom tracecomp.nn import functional as F\nx = torch.ones(2, 3)\n"
    script = jedi.Script(head + typed, project=jedi.Project(ROOT))
    if wanted is not None:
        assert wanted in [c.name for c in script.complete()]
    if argument is not None:
        found = script.get_signatures()
        assert any(argument in [p.name for p in signature.params] for signature in found)
        assert found[0].docstring(raw=True)
