"""The programs in dumps run again, to the same bits, in another process and on another machine."""

from __future__ import annotations

import hashlib
import runpy
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.machines import MACHINES
from tracecomp.__main__ import main
from tracecomp.base import config
from tracecomp.eager_kernels.background import finish
from tracecomp.inspect import compare
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.passes.cost.machine import on
from tracecomp.passes.graph import rule_sets

Captured = pytest.CaptureFixture[str]


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@pytest.fixture
def dumped(tmp_path: Path) -> tuple[Path, str]:
    """The dump of a call, with its arrays in a file, and the digest of what the compiled call gave."""
    torch.manual_seed(0)
    x, w = torch.randn(40, 24), torch.randn(24, 16)
    table = torch.linspace(0, 1, 16 * 40).reshape(40, 16).numpy()

    def scores(x: Any, w: Any) -> Any:
        return torch.softmax(x @ w + torch.tensor(table), 1)

    with config.override(dump=str(tmp_path)):
        run = torch.compile(scores, dynamic=False)
        found = [run(x, w) for _ in range(3)][-1]
    np.savez(tmp_path / "in.npz", x.numpy(), w.numpy())
    return tmp_path, digest(found.numpy())


@pytest.mark.parametrize("stage", ["recorded", "layout", "dead_code", "row_fusion", "arena", "program"])
def test_run_on_a_dump_gives_the_compiled_bits(stage: str, dumped: tuple[Path, str], capsys: Captured) -> None:
    folder, wanted = dumped
    [file] = folder.glob(f"scores/*_{stage}.ir")
    assert main(["run", str(file), "--inputs", str(folder / "in.npz"), "-o", str(folder / "out.npz")]) == 0
    assert capsys.readouterr().out.endswith(f" {wanted}\n")
    assert digest(np.load(folder / "out.npz")["arr_0"]) == wanted


def test_both_interpreters_run_dumps(dumped: tuple[Path, str], capsys: Captured) -> None:
    folder, _ = dumped
    found = []
    for stage in ("recorded", "program"):
        [file] = folder.glob(f"scores/*_{stage}.ir")
        given = ["--inputs", str(folder / "in.npz"), "--way", "interpret", "-o", str(folder / f"{stage}.npz")]
        assert main(["run", str(file), *given]) == 0
        found.append(np.load(folder / f"{stage}.npz")["arr_0"].reshape(40, 16))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    capsys.readouterr()


def test_dumps_are_of_the_users_programs_alone(dumped: tuple[Path, str]) -> None:
    assert [p.name for p in dumped[0].iterdir() if p.is_dir()] == ["scores"]


def test_arrays_go_to_inputs_by_name_and_else_in_order(dumped: tuple[Path, str], capsys: Captured) -> None:
    folder, wanted = dumped
    x, w = np.load(folder / "in.npz").values()
    np.savez(folder / "w.npz", **{"[1]": w})
    np.savez(folder / "x.npz", x)
    [file] = folder.glob("scores/*_recorded.ir")
    assert main(["run", str(file), "--inputs", str(folder / "w.npz"), "--inputs", str(folder / "x.npz")]) == 0
    assert wanted in capsys.readouterr().out
    assert main(["run", str(file), "--inputs", str(folder / "x.npz")]) == 2
    assert "no array for [1]; there are arr_0" in capsys.readouterr().err


def test_a_traced_graph_runs_with_the_arrays_saved_beside_it(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "f.py").write_text("import tracecomp as torch\n\ndef f(x):\n    return x * 2 + 1\n")
    paths = [str(tmp_path / name) for name in ("f.ir", "f.npz", "out.npz")]
    target = [f"{tmp_path / 'f.py'}:f", "--shape", "3"]
    assert main(["trace", *target, "-o", paths[0], "--save-inputs", paths[1]]) == 0
    assert main(["run", paths[0], "--inputs", paths[1], "-o", paths[2]]) == 0
    capsys.readouterr()
    np.testing.assert_array_equal(np.load(paths[2])["arr_0"], np.load(paths[1])["arr_0"] * 2 + 1)


GRAPH = """graph "g" {
  %x: f32[4] = argument "x"
  %0 = neg(%x) : f32[4]
  %1 = neg(%0) : f32[4]
  %2 = mul(2.0:f32, 3.0:f32) : f32[]
  %3 = mul(%1, %2) : f32[4]
  result "out0" = %3
}
"""


def test_opt_runs_the_passes_that_are_named_in_their_order(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "g.ir"
    file.write_text(GRAPH)
    assert main(["opt", str(file), "--passes", "simplify,fold", "--print-between"]) == 0
    simplified, folded = capsys.readouterr().out.split("# after constant_folding\n")
    assert simplified.startswith("# after simplify\n") and "neg(" not in simplified
    assert "mul(2.0:f32, 3.0:f32)" not in folded and "6.0:f32" in folded
    assert main(["opt", str(file), "--passes", "fold"]) == 0
    assert capsys.readouterr().out.count("neg(") == 2
    assert main(["opt", str(file), "--passes", "nothing"]) == 2
    assert "no pass 'nothing'" in capsys.readouterr().err


def test_opt_goes_on_to_the_program_with_a_schedule_by_hand(tmp_path: Path, capsys: Captured) -> None:
    file, schedule = tmp_path / "g.ir", tmp_path / "k0.sched"
    file.write_text(GRAPH.replace("f32[4]", "f32[4096]"))
    schedule.write_text("lanes across rows\n  width 16\n")
    with on(MACHINES["Haswell"]):
        assert main(["opt", str(file), "--program"]) == 0
        chosen = capsys.readouterr().out
        assert main(["opt", str(file), "--schedule", f"k0={schedule}"]) == 0
    by_hand = capsys.readouterr().out
    assert chosen.startswith("program g: arena 0 bytes\n") and by_hand.startswith("program g: arena 0 bytes\n")
    assert "vector i0v < 16:" in by_hand and "vector i0v < 16:" not in chosen


def wrong_difference(g: Graph, a: Node) -> Value | None:
    return g.apply("add", a.inputs[0], a.inputs[1])


@pytest.mark.parametrize("inputs", [False, True])
def test_a_difference_is_saved_and_shown_elsewhere(
    inputs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    x = torch.linspace(-1, 1, 6)
    finish()
    with config.override(eager="numpy"), monkeypatch.context() as patch:
        patch.setitem(rule_sets.SIMPLIFICATION._by_op, "sub", [wrong_difference])
        found = compare(lambda x: x - 0.5 * x, x, changed=False)
        assert found.divergence is not None and found.divergence.stage == "simplify"
        found.save(tmp_path / "fault.zip", inputs=inputs)
        with zipfile.ZipFile(tmp_path / "fault.zip") as archive:
            assert sorted(archive.namelist()) == ["graph.ir", *["inputs.npz"] * inputs, "report.txt", "reproduce.py"]
            assert "sub(" in archive.read("report.txt").decode()
            archive.extractall(tmp_path)
        runpy.run_path(str(tmp_path / "reproduce.py"))
    shown = capsys.readouterr().out
    assert shown.startswith("result out0 f32[6]: ") and "equal" not in shown
    # The script reports when the fault is fixed.
    runpy.run_path(str(tmp_path / "reproduce.py"))
    assert capsys.readouterr().out == "result out0 f32[6]: equal\n"


def test_without_a_graph_at_fault_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no graph differs"):
        compare(lambda x: x + 1, torch.ones(2), changed=False).save(tmp_path / "a.zip")
