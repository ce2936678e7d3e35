"""The examples and the demo: each whole training step is one graph, with the eager losses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.distributed.test_launcher import environment
from tracecomp import demo

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("name", "amount"), [("digits", 1), ("char_gpt", 15), ("lstm", 15)])
def test_an_example_is_one_graph_with_the_eager_losses(name: str, amount: int, capsys: Any) -> None:
    module = example(name)
    results = [module.train(compiled, amount) for compiled in (False, True)]
    eager, compiled = (r[1] if isinstance(r, tuple) else r for r in results)
    assert "compiled, 1 graph:" in capsys.readouterr().out
    assert len(eager) == len(compiled) >= 15
    assert max(abs(a - b) for a, b in zip(eager, compiled, strict=True)) <= 1e-4
    assert min(eager[-5:]) < eager[0]


@pytest.mark.parametrize("options", [("--epochs", "0"), ("--batch", "0"), ("--batch", "5000")])
def test_the_demo_refuses_to_time_nothing(options: tuple[str, str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        demo.demo(options)
    assert "at most 3 steps" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_prints_its_table_and_writes_its_dumps(tmp_path: Path, capsys: Any) -> None:
    demo.demo(["--epochs", "1", "--batch", "128", "--dump", str(tmp_path / "dump")])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if "eager" in line or "compiled" in line]
    assert sum("ms" in line for line in lines) == 4 and str(tmp_path / "dump") in printed
    assert "convolutional: 1 graph" in printed and "mlp: 1 graph" in printed
    apart = [float(line.split()[-1]) for line in printed.splitlines() if "differ by at most" in line]
    assert len(apart) == 2 and max(apart) <= 1e-4
    assert any((tmp_path / "dump").rglob("*.ll")) and any((tmp_path / "dump").rglob("*.s"))


def test_the_digits_are_what_their_description_says() -> None:
    learn, held_out = demo.digits()
    images, labels = learn.tensors
    assert len(learn) + len(held_out) == 1797 and tuple(images.shape[1:]) == (1, 8, 8)
    assert float(images.min()) >= 0 and float(images.max()) == 1.0
    assert sorted(set(labels.tolist())) == list(range(10))


@pytest.mark.slow
def test_the_demo_as_a_command_agrees_at_every_step() -> None:
    """Run as a module, all code is inside the package: no user line exists, and the numbers are the same."""
    command = [sys.executable, "-m", "tracecomp", "demo", "--epochs", "1", "--batch", "128"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    apart = re.findall(r"differ by at most (\S+)", done.stdout)
    assert len(apart) == 2 and all(float(a) <= 1e-4 for a in apart), done.stdout + done.stderr


@pytest.mark.slow
def test_digits_are_learnt_in_two_processes() -> None:
    script = str(EXAMPLES / "distributed_digits.py")
    launcher = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", "local", "-n", "2"]
    done = subprocess.run(
        [*launcher, script, "--epochs", "2"], capture_output=True, text=True, timeout=200, env=environment()
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"2 processes: ([\d.]+)% of held-out digits", done.stdout)
    assert found is not None and float(found[1]) > 90
