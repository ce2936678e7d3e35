"""The benchmark suite itself: workloads make sense, engines agree, a disagreement is noticed, reports are made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import call_cost, report
from benchmarks.cases import KINDS, WORKLOADS, select
from benchmarks.compare import checkout, compare, table
from benchmarks.engines import ENGINES
from benchmarks.plot import classes, draw
from benchmarks.speed import Turns, _gap

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200
    )


@pytest.mark.slow
def test_run_writes_json_and_prints_the_table(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    classes = ("softmax 64x10", "matmul/64x64", "MLP 16-32-32-4, batch 8, sgd")
    options = ("--engines", "tracecomp,numpy", "--threads", "1", "--parts", "speed", "--quick")
    places = ("--cache", str(tmp_path / "cache"), "--output", str(output))
    done = run("run", "--classes", *classes, *options, *places)
    assert done.returncode == 0, done.stderr
    speed = json.loads(output.read_text())["speed"]["1"]
    product = speed["matmul/64x64 @ 64x64"]
    assert product["tracecomp"]["seconds"] > 0
    assert product["numpy"]["ratio"] > 0
    assert product["tracecomp"]["difference"] <= WORKLOADS["matmul/64x64 @ 64x64"].tolerance
    assert "unsupported" in speed["rows and columns/softmax 64x10"]["numpy"]
    step = speed["training/MLP 16-32-32-4, batch 8, sgd"]["tracecomp"]
    assert "seconds" in step, step
    assert "| 64x64 @ 64x64 |" in done.stdout
    assert run("show", str(output)).stdout == done.stdout


def test_wrong_options_are_named() -> None:
    wrong = run("run", "--engines", "tracecomp,nosuch")
    assert wrong.returncode == 2
    assert "nosuch" in wrong.stderr
    with pytest.raises(ValueError, match="no workload fits nosuch"):
        select(["nosuch"])


def test_call_cost_names_a_wrong_interpreter_and_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for argument, status in (("--help", 0), ("no/such/python", 2)):
        monkeypatch.setattr(sys, "argv", ["call_cost", argument])
        with pytest.raises(SystemExit) as ended:
            call_cost.main()
        assert ended.value.code == status
    printed = capsys.readouterr()
    assert "PYTHON" in printed.out and "no/such/python is not a program" in printed.err


def test_every_class_of_work_is_there() -> None:
    assert set(KINDS) >= {"call", "elementwise", "rows and columns", "movement", "matmul", "inference", "training"}
    assert {w.optimizer for w in WORKLOADS.values()} == {"", "sgd", "adamw"}


def test_inputs_are_the_same_every_time() -> None:
    for workload in select(["call/", "indexing/sort"]):
        for first, second in zip(workload.arrays(), workload.arrays(), strict=True):
            np.testing.assert_array_equal(first, second)


def test_a_different_result_is_noticed() -> None:
    expected = [np.array([1.0, 100.0])]
    assert _gap([np.array([1.0, 101.0])], expected) == pytest.approx(0.01)
    assert _gap([np.array([[1.0, 100.0]])], expected) == float("inf")
    assert _gap([np.array([1.0, np.nan])], expected) == float("inf")


def test_jax_models_compute_what_ours_do(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    ours, theirs = ENGINES["tracecomp eager"](1, tmp_path), ENGINES["jax.jit"](1, tmp_path)
    for workload in select(["inference/LeNet 28x28, batch 1", "training/MLP 16-32-32-4, batch 8, adamw"]):
        calls = [e.prepare(workload) for e in (ours, theirs)]
        results = [[call() for call in calls] for _ in range(3)][-1]
        gap = _gap(theirs.arrays(results[1]), ours.arrays(results[0]))
        assert gap <= workload.tolerance


def test_report_marks_what_is_behind_and_what_failed() -> None:
    rows = {
        "tracecomp": {"seconds": 2e-3, "cpu": 2e-3},
        "torch": {"seconds": 1e-3, "cpu": 1e-3, "ratio": 0.5},
        "jax.jit": {"failed": "out of luck"},
    }
    results = {"speed": {"1": {"call/add 4": rows}}}
    assert "0.50 of torch's speed" in report.behind(results)
    assert "jax.jit, 1 thread(s), call/add 4: out of luck" in report.failures(results)


def test_classes_of_a_plot_stand_in_one_order() -> None:
    assert classes({"speed": {"1": {"matmul/a": {}, "call/b": {}}, "2": {"training/c": {}, "call/b": {}}}}) == (
        classes({"speed": {"2": {"call/b": {}, "training/c": {}, "matmul/a": {}}}})
    )


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    rows = {"tracecomp": {"seconds": 1e-3, "ratio": 1.0}, "torch": {"seconds": 2e-3, "ratio": 2.0}}
    draw({"speed": {"1": {"call/add 4": rows}}}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


class _Team:
    """The processes of two commits. The new one takes ``times`` as long as the old one, measurement by measurement."""

    threads = 1
    engines = ("tracecomp", "before")

    def __init__(self, times: list[float]) -> None:
        self._times = iter(times)
        self._now = 1.0

    def ask(self, engine: str, do: str, **options: object) -> dict[str, object]:
        if do == "prepare":
            if engine == "tracecomp":
                self._now = next(self._times)
            return {"first_calls": [1.0]}
        if do == "result":
            return {"none": True}
        seconds = self._now if engine == "tracecomp" else 1.0
        return {"wall": [seconds, 1.5 * seconds], "cpu": seconds}


@pytest.mark.parametrize(
    ("times", "slower"),
    [([1.0], False), ([0.5], False), ([1.02], False), ([1.1, 1.0], False), ([1.1, 1.2, 1.1], True)],
)
def test_compare_counts_what_every_measurement_shows(
    times: list[float], slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.speed.has_cores", lambda threads: True)
    workload = WORKLOADS["matmul/64x64 @ 64x64"]
    found, bad = compare(_Team(times), [workload], Turns(2, 0.0, 1), 0.03, print)  # type: ignore[arg-type]
    assert bad == ([workload.id] if slower else [])
    assert found == {workload.id: max(1 / t for t in times)}
    assert ("slower or failed: matmul" in table(found, bad)) is slower


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="commits need git")
def test_a_checkout_has_every_package_of_its_commit(tmp_path: Path) -> None:
    """Packages of another folder would count as the user's."""
    folder = checkout("HEAD", tmp_path / "now")
    named = subprocess.run(
        [sys.executable, "-c", "import tracecomp, tracecomp_runtime as r; print(tracecomp.__file__, r.__file__)"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(Path(file).is_relative_to(folder) for file in named.stdout.split())
