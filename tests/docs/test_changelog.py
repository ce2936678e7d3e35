"""CHANGELOG.md: versions from the newest on, what changed by kind; the newest is the version of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tracecomp
from tracecomp.__main__ import main

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
KINDS = ["Added", "Changed", "Fixed", "Faster"]
MOST_LINES = 4
"""Of one entry: who wants to know more reads the page that it names."""


def test_the_newest_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    versions = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tracecomp {tracecomp.__version__}\n"
    assert versions[0] == tracecomp.__version__
    assert versions == sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


def test_changes_stand_under_their_kind() -> None:
    for version in TEXT.split("\n## ")[1:]:
        first, *parts = version.split("\n### ")
        kinds = [p.split("\n")[0] for p in parts]
        assert kinds
        assert kinds == [kind for kind in KINDS if kind in kinds]
        assert "\n* " not in first


def test_a_change_is_told_in_few_lines() -> None:
    entries = re.findall(r"^\* .*(?:\n  .*)*", TEXT, re.MULTILINE)
    assert entries
    assert [e for e in entries if e.count("\n") >= MOST_LINES] == []
