"""CHANGELOG.md: a version has highlights, then one-line entries by kind; the newest is the package's version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracecomp
from tracecomp.__main__ import main

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
KINDS = ["Added", "Changed", "Fixed", "Removed", "Performance", "Security"]
MOST_HIGHLIGHTS = 10
"""Per version: what a user would repeat to a colleague."""
MOST_ENTRIES = 40
"""Per version, all kinds together. Details belong on the page that an entry names."""


def versions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each version and its sections; the first section holds the highlights."""
    for version in text.split("\n## ")[1:]:
        name, _, body = version.partition("\n")
        yield name, f"\n{body}".split("\n### ")


def bullets(section: str) -> list[str]:
    """Return the list entries of a section with their continuation lines."""
    return re.findall(r"^\* .*(?:\n  .*)*", section, re.MULTILINE)


def test_the_newest_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name, _ in versions(TEXT)]
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tracecomp {tracecomp.__version__}\n"
    assert names[0] == tracecomp.__version__
    assert names == sorted(names, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


def test_entries_are_grouped_by_kind() -> None:
    for _, (_, *sections) in versions(TEXT):
        kinds = [section.partition("\n")[0] for section in sections]
        assert kinds
        assert kinds == [kind for kind in KINDS if kind in kinds]


def test_a_version_has_few_highlights_and_one_line_entries() -> None:
    for name, (highlights, *sections) in versions(TEXT):
        assert 0 < len(bullets(highlights)) <= MOST_HIGHLIGHTS, name
        entries = [entry for section in sections for entry in bullets(section)]
        assert 0 < len(entries) <= MOST_ENTRIES, name
        assert [entry for entry in entries if "\n" in entry] == []
