"""Every stage of a few small programs against the text kept here; ``pytest tests/golden --update`` rewrites it.

These files change exactly if compiled code changes, and then show the effect. The machine is fixed, so that the files
are the same everywhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.programs import PROGRAMS
from tests.machines import MACHINES
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import on

HERE = Path(__file__).parent
MACHINE = MACHINES["Zen 4"]


def transcript(graph: Graph, folder: Path) -> str:
    """The stages of ``graph`` one below the other; a part that is as in the stage before shows its first line only."""
    with config.override(dump=str(folder)), on(MACHINE):
        build(graph, dump=Dump(graph.name))
    stages, before = [], set[str]()
    for path in sorted((folder / graph.name).glob("*.ir")):
        text = re.sub(r"  # .*programs\.py:.*", "", path.read_text())  # lines of source files, which move
        parts = text.strip().split("\n\n")
        shown = [f"{part.splitlines()[0]} ... as before" if part in before else part for part in parts]
        stages.append("\n\n".join([f"==== {path.stem.split('_', 1)[1]}", *shown]))
        before = set(parts)
    return "\n\n".join(stages) + "\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_is_as_kept(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path = HERE / f"{name}.txt"
    found = transcript(PROGRAMS[name](), tmp_path / "first")
    assert transcript(PROGRAMS[name](), tmp_path / "second") == found
    if pytestconfig.getoption("--update"):
        path.write_text(found)
    assert found == path.read_text(), f"if this change is meant: pytest {Path(__file__).parent.name} --update"


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(PROGRAMS)
