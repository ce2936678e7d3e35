"""``profile``, ``bench``, ``cache``, ``doctor`` and ``explain`` of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tracecomp.__main__ import main, parser
from tracecomp.base import config
from tracecomp.runtime import object_cache
from tracecomp.torch_compat.doctor import examine, judge


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text("import tracecomp as torch\n\ndef f(x):\n    return torch.softmax(x, 1)\n")
    return f"{path}:f"


def test_profile_prints_kernels_and_writes_a_trace(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    assert main(["profile", program, "--shape", "64,64", "--trace", str(trace)]) == 0
    assert "by the wall clock" in capsys.readouterr().out
    events = json.loads(trace.read_text())["traceEvents"]
    assert all(e["ph"] == "X" and e["dur"] > 0 for e in events) and any("max" in e["name"] for e in events)


def test_explain_and_profile_have_the_same_kernels(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", program, "--shape", "64,64", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert main(["profile", program, "--shape", "64,64", "--json"]) == 0
    profiled = json.loads(capsys.readouterr().out)
    kernels = explained["recordings"][0]["graphs"][0]["kernels"]
    assert [(k["name"], k["nbytes"], k["operations"]) for k in kernels] == [
        (k["name"], k["nbytes"], k["operations"]) for k in profiled["kernels"]
    ]


def test_bench_gives_both_times(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", program, "--shape", "32,32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] == pytest.approx(found["eager"] / found["compiled"])


def test_a_function_of_an_importable_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "tracecomp.nn.functional:relu", "--shape", "3"]) == 0
    assert 'graph "relu"' in capsys.readouterr().out
    assert main(["trace", "no.such.module:f"]) == 2
    assert "no module no.such.module" in capsys.readouterr().err


def test_cache_lists_verifies_and_clears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["ab" * 32, "cd" * 32]
    with config.override(cache_dir=str(tmp_path / "cache")):
        for key in keys:
            object_cache.write(key, b"code")
        assert main(["cache", "list", "--json"]) == 0
        assert {e["key"] for e in json.loads(capsys.readouterr().out)} == set(keys)
        assert main(["cache", "verify"]) == 0
        damaged = tmp_path / "cache" / f"{keys[0]}.o"
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
        assert main(["cache", "verify"]) == 1
        assert "1 damaged" in capsys.readouterr().out
        assert main(["cache", "clear"]) == 0
        assert "removed 2 files" in capsys.readouterr().out and not object_cache.entries()


PROGRAM = """\
import torch
import torch.nn as nn
from torch.nn import functional as F
from torch import optim as o
x = torch.empty(3, device="cuda:0")
y = F.gelu(nn.Linear(3, 4)(x)).to_mkldnn()
torch.quantize_per_tensor(x, 0.1, 1, torch.qint8)
o.AdamW([x]).step()
nn.Absent
self.gelu(x)
"""


def test_doctor_tells_what_a_program_would_miss() -> None:
    kinds = {(f.path, f.line): f.kind for f in examine(PROGRAM, "p.py")}
    assert kinds["torch.empty", 5] == "differs" and kinds["'cuda:0'", 5] == "device"
    here = ("torch.nn.functional.gelu", 6), ("torch.nn.Linear", 6), ("torch.optim.AdamW", 8)
    assert [kinds[name] for name in here] == ["here"] * 3
    assert kinds["torch.Tensor.to_mkldnn", 6] == kinds["torch.quantize_per_tensor", 7] == "missing"
    assert kinds["torch.nn.Absent", 9] == "unknown"


def test_doctor_agrees_with_what_is_there() -> None:
    here = "torch.Tensor.backward", "torch.float32", "torch.cuda.is_available"
    assert [judge(name)[0] for name in here] == ["here"] * 3
    assert judge("torch.quantize_per_tensor")[0] == "missing"


def test_doctor_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    assert main(["doctor", str(script)]) == 1
    assert "torch.Tensor.to_mkldnn" in capsys.readouterr().out
    script.write_text("import torch\ntorch.ones(2)\n")
    assert main(["doctor", str(tmp_path), "--json"]) == 0
    assert {f["path"] for f in json.loads(capsys.readouterr().out)} == {"torch", "torch.ones"}
    script.write_text("import torch (\n")
    assert main(["doctor", str(script)]) == 2


def test_every_command_has_help_that_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = (a for a in parser()._actions if hasattr(a, "choices") and isinstance(a.choices, dict))
    assert {"run", "trace", "compare", "explain", "report", "profile", "bench", "cache", "env", "doctor"} <= set(
        commands.choices or {}
    )
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "tracecomp doctor train.py" in capsys.readouterr().out


# ---- logging


LOGGED = """
import tracecomp as torch
f = torch.compile(lambda x: x * 2 + 1)
for n in (3, 3, 4):
    f(torch.ones(n))
"""


def logged(topics: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "logged.py"
    path.write_text(LOGGED)
    environment = {"TRACECOMP_LOG": topics, "TRACECOMP_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": "."}
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.slow
def test_topics_are_written_when_asked_for_and_otherwise_nothing(tmp_path: Path) -> None:
    assert logged("", tmp_path).stderr == ""
    found = logged("recompiles,graphs", tmp_path).stderr
    assert "[tracecomp.recompiles] <lambda>: shape of argument [0] went from (3,) to (4,)" in found
    assert "[tracecomp.graphs] graph" in found and "simplify" not in found


def test_a_topic_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert "unknown topic graph; topics are graphs," in logged("graph", tmp_path).stderr
