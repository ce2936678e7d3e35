"""The report: one file that loads nothing else, with the data of ``explain``, and changes relative to another
report."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.__main__ import main
from tracecomp.inspect.report.compile_times import as_text

WIDTH = 32


class Step:
    """A training step of a small network."""

    __name__ = "step"

    def __init__(self, width: int = WIDTH) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def __call__(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def operands() -> tuple[Any, Any]:
    return torch.randn(8, 16), torch.randint(0, 4, (8,))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = torch.compile(Step()).report(tmp_path_factory.mktemp("report") / "step.html", *operands())
    return path


def twin(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text())


def test_the_time_of_compiling_is_a_tree_of_steps(written: Path) -> None:
    [program] = twin(written)["programs"]
    tree = program["compileTimes"]
    parts = {p["name"]: p for p in tree["parts"]}
    assert list(parts) == ["recording", "passes", "lowering", "machine code"]
    assert [p["name"] for p in parts["machine code"]["parts"]] == ["text", "LLVM", "link"]
    [kernels] = [p for p in parts["lowering"]["parts"] if p["name"] == "kernels"]
    assert [p["name"] for p in kernels["parts"]] == ["nests"]
    lines = as_text(tree).splitlines()
    assert lines[0].startswith("#" * 40) and lines[0].endswith("100 %  step")
    assert any(line.endswith("    LLVM") for line in lines)

    def check(step: Any) -> None:
        assert sum(p["seconds"] for p in step["parts"]) <= step["seconds"] * 1.001
        list(map(check, step["parts"]))

    check(tree)


@pytest.mark.slow
def test_one_file_that_asks_for_nothing_else(written: Path) -> None:
    text = written.read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", text) and "default-src 'none'" in text
    assert "@import" not in text and "fetch(" not in text and len(text) < 10e6
    assert json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0]) == twin(written)


def test_text_of_a_program_cannot_end_the_script(tmp_path: Path) -> None:
    def named(x: Any) -> Any:
        return x + 1

    named.__name__ = "</script><b>"
    text = torch.compile(named).report(tmp_path / "x.html", torch.ones(2)).read_text()
    assert text.count("</script>") == 3 and "</script><b>" not in text  # the theme's, the data's, the page's


@pytest.mark.parametrize(
    ("name", "title"), [("{{data}}", "{{data}}"), ("{{style}}", "{{style}}"), ("\udc80<i>", "&#56448;&lt;i&gt;")]
)
def test_a_name_is_only_a_name(tmp_path: Path, name: str, title: str) -> None:
    def named(x: Any) -> Any:
        return x + 1

    named.__name__ = name
    path = torch.compile(named).report(tmp_path / "x.html", torch.ones(2))
    assert f"<title>{title}: tracecomp report</title>" in path.read_text()
    assert twin(path)["name"] == name


def test_nodes_that_a_step_leaves_alone_keep_their_number(written: Path) -> None:
    (program,) = [p for p in twin(written)["programs"] if p["phase"] == "forward"]
    tables = [program["tables"][s["table"]] for s in program["stages"]]
    for before, after in pairwise(tables):
        assert len(set(before["ids"]) & set(after["ids"])) >= 0.5 * len(after["ids"])
    for table in tables:
        assert len(table["ids"]) == len(set(table["ids"])) == len(table["inputs"])
        assert all(m < n for n, read in enumerate(table["inputs"]) for m in read)


def test_kernels_nodes_lines_and_code_are_joined(written: Path) -> None:
    data = twin(written)
    program = data["programs"][0]
    last = set(program["tables"][-1]["ids"])
    for call in program["calls"]:
        assert set(call["nodes"]) <= last and call["name"] in program["kernels"]
    texts = program["texts"]
    lines = {texts[program["nodes"][i][4]] for call in program["calls"] for i in call["nodes"]}
    assert {line for call in program["calls"] for line in call["sources"]} == lines - {""}
    for line in lines - {""}:
        file, _, number = line.rpartition(":")
        assert number in data["sources"][file]
    assert all(k["loops"] and k["assembly"] and k["schedule"] for k in program["kernels"].values())
    assert sorted(c for calls in program["kernelGraph"]["calls"] for c in calls) == list(range(len(program["calls"])))


def test_phases_are_told_apart(written: Path) -> None:
    program = twin(written)["programs"][0]
    assert {"forward", "backward", "update"} <= {name for name, _ in program["tables"][0]["boxes"]}


def test_copies_of_results_stand_in_a_box_of_their_own(tmp_path: Path) -> None:
    state = torch.zeros(4)

    def swapped(x: Any) -> Any:
        before = state.clone()
        state.copy_(x)
        return before

    graph = twin(torch.compile(swapped).report(tmp_path / "c.html", torch.ones(4)))["programs"][0]["kernelGraph"]
    copies = [n for n, name in enumerate(graph["names"]) if name.endswith("copy")]
    rows = [item for name, rows in graph["boxes"] if name == "copies of results" for row in rows for item in row]
    assert copies and sorted(rows) == copies


def test_loops_of_a_graph_are_nodes_whose_calls_are_theirs(tmp_path: Path) -> None:
    rnn = nn.GRU(3, 5)
    data = twin(torch.compile(rnn).report(tmp_path / "rnn.html", torch.randn(7, 2, 3)))
    graph = data["programs"][0]["kernelGraph"]
    assert "scan" in graph["names"] and max(map(len, graph["calls"])) > 1
    assert sorted(c for calls in graph["calls"] for c in calls) == list(range(len(data["programs"][0]["calls"])))


def test_against_an_earlier_report_only_changes_are_said(written: Path, tmp_path: Path) -> None:
    old = written.with_suffix(".json")
    path = torch.compile(Step(2 * WIDTH)).report(tmp_path / "new.html", *operands(), against=old)
    changed = twin(path)["changes"]
    assert any("bytes of state" in c["what"] for c in changed) and any("kernel" in c["what"] for c in changed)
    same = twin(torch.compile(Step()).report(tmp_path / "same.html", *operands(), against=old))["changes"]
    assert not [c for c in same if "kernel k" in c["what"] and "us" not in c["after"]]


def test_against_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match="not the JSON"):
        torch.compile(lambda x: x + 1).report(tmp_path / "y.html", torch.ones(2), against=tmp_path / "x.json")


def test_a_function_that_runs_eagerly_has_a_report_too(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x + 1, disable=True)
    data = twin(compiled.report(tmp_path / "x.html", torch.ones(2)))
    assert data["programs"] == [] and data["facts"]["eager_because"] == "disable=True"


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.py").write_text("import tracecomp as torch\ndef f(x):\n    return torch.softmax(x, 1)\n")
    out = tmp_path / "out.html"
    assert main(["report", f"{tmp_path}/p.py:f", "--shape", "8,16", "-o", str(out)]) == 0
    assert out.exists() and str(out) in capsys.readouterr().err


def test_errors_of_nodes_are_there_on_request(written: Path, tmp_path: Path) -> None:
    assert all(p["errors"] == {} for p in twin(written)["programs"])
    found = twin(torch.compile(Step()).report(tmp_path / "step.html", *operands(), errors=True))
    (program,) = [p for p in found["programs"] if p["phase"] == "forward"]
    errors = {program["texts"][program["nodes"][int(n)][0]]: e for n, e in program["errors"].items()}
    assert {"contract", "exp"} <= set(errors) and 0 < max(errors.values()) < 1e-5
