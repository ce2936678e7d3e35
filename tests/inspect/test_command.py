"""The command line on programs in files, with operands from options, files and functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracecomp.__main__ import main
from tracecomp.inspect import command, tensor_files
from tracecomp.ir.parser import parse_graph

PROGRAM = """
import tracecomp as torch

def scaled(x, factor):
    return torch.tanh(x) * factor

def operands():
    return torch.ones(3), torch.ones(3)

def named():
    return {"x": torch.ones(3), "factor": torch.ones(1)}

number = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_trace_prints_a_graph_that_reads_back(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{program}:scaled", "--shape", "2,3", "--shape", "factor=3"]) == 0
    text = capsys.readouterr().out
    assert "tanh" in text and f"{program}:5" in text
    graph = parse_graph(text)
    assert [str(i.value.type) for i in graph.inputs] == ["f32[2,3]", "f32[3]"]


def test_trace_names_files_from_the_folder_that_it_runs_in(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(program).parent)
    assert main(["trace", "program.py:scaled", "--shape", "2,3", "--shape", "factor=3"]) == 0
    assert "  # program.py:5\n" in capsys.readouterr().out


def test_trace_into_a_file(program: str, tmp_path: Path) -> None:
    out = tmp_path / "graph.ir"
    assert main(["trace", f"{program}:scaled", "--inputs", f"{program}:operands", "-o", str(out), "--plain"]) == 0
    assert "#" not in out.read_text() and parse_graph(out.read_text()).name == "scaled"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors", "tuple", "dict"])
def test_compare_with_operands_from(
    kind: str, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, factor = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    given = {"npz": [str(tmp_path / "d.npz")], "npy": [str(tmp_path / "x.npy"), str(tmp_path / "f.npy")],
             "safetensors": [str(tmp_path / "d.safetensors")], "tuple": [f"{program}:operands"],
             "dict": [f"{program}:named"]}[kind]  # fmt: skip
    np.savez(tmp_path / "d.npz", x=x, factor=factor)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", factor)
    write_safetensors(tmp_path / "d.safetensors", {"x": x, "factor": factor})
    options = [part for source in given for part in ("--inputs", source)]
    assert main(["compare", f"{program}:scaled", *options]) == 0
    seen = capsys.readouterr()
    assert "everything agrees" in seen.out and "kernel 1 of 1" in seen.err


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_explain(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{program}:scaled", "--shape", "4", "--shape", "4"]) == 0
    assert "as 1 kernel call," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [(["trace", "nowhere.py:f"], "no file nowhere.py"), (["trace", "what"], "expected file.py:name"),
     (["trace", "PROGRAM:absent"], "has no 'absent'; it has scaled"), (["trace", "PROGRAM:number"], "is a int"),
     (["trace", "PROGRAM:scaled", "--shape", "2;3"], "must have the form"),
     (["trace", "PROGRAM:scaled", "--shape", "2:f99"], "must have the form"),
     (["trace", "PROGRAM:scaled", "--inputs", "x.npz"], "no file x.npz")],
)  # fmt: skip
def test_wrong_usage(options: list[str], message: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([o.replace("PROGRAM", program) for o in options]) == 2
    assert message in capsys.readouterr().err


def test_error_in_the_program_shows_its_own_lines(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", f"{program}:scaled", "--shape", "2,3", "--shape", "2"]) == 2
    seen = capsys.readouterr().err
    assert "RuntimeError: " in seen and "torch.tanh(x) * factor" in seen and "tracecomp/functional" not in seen


def test_incomplete_and_unknown_files(tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes((100).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="not a complete"):
        tensor_files.read_arrays(tmp_path / "cut.safetensors")
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(ValueError, match=r"expected \.npy"):
        tensor_files.read_arrays(tmp_path / "x.txt")


def test_random_operands_have_the_type_asked_for() -> None:
    rng = np.random.default_rng(0)
    name, mask = command.random_operand("mask=4:bool", rng)
    assert (name, mask.shape, mask.dtype.name) == ("mask", (4,), "bool")
    assert command.random_operand("", rng)[1].shape == ()


@pytest.mark.slow
def test_runs_as_a_module(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tracecomp", "compare", f"{program}:scaled", "--shape", "3", "--shape", "3", "--quiet"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and "everything agrees" in done.stdout and done.stderr == ""


def test_demo_has_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["demo", "--help"])
    assert leaving.value.code == 0 and "--epochs" in capsys.readouterr().out


def test_unknown_option(program: str) -> None:
    with pytest.raises(SystemExit):
        main(["trace", f"{program}:scaled", "--shapes", "3"])


def test_help_names_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "TRACECOMP_DUMP" in capsys.readouterr().out


def test_compare_for_programs_to_read(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    what = ["compare", f"{program}:scaled", "--shape", "2,3", "--shape", "3", "--quiet", "--same"]
    assert main([*what, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["divergence"] is None and found["name"] == "scaled"
    assert {"recorded", "native"} <= {s["name"] for s in found["stages"]}
    assert all(d["ulp"] < 4 for d in found["native"].values())


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        (["--shape", "3"], "missing a required argument: 'factor', 1 given"),
        ([], "missing a required argument: 'x', 0 given"),
        (["--shape", "3", "--shape", "3", "--shape", "3"], "too many positional arguments, 3 given"),
        (["--shape", "3", "--shape", "other=3"], "missing a required argument: 'factor'"),
        (["--shape=-3"], "must have the form"),
    ],
)
def test_operands_that_a_function_does_not_take(
    operands: list[str], said: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", f"{program}:scaled", *operands]) == 2
    assert said in capsys.readouterr().err


def test_explain_of_a_function_without_arguments(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{program}:operands"]) == 0
    assert "recordings 1" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_not_made(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(Path(program).parent / "nowhere" / "page.html")
    assert main(["report", f"{program}:scaled", "--inputs", f"{program}:operands", "-o", where]) == 2
    assert "no folder" in capsys.readouterr().err
