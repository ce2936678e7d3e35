"""A table of measurements states its command, its processor and its date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
MEASURED = re.compile(r"\b\d+(\.\d+)? (ms|us|ns|s|MB)\b|\b(ms|us|relative|speedup) \||time / ")
REQUIRED = {
    "command": re.compile(r"python -[mc] |pytest |\.ci/run|process_time\(\)|`--classes"),
    "processor": re.compile(r"EPYC|Xeon"),
    "date": re.compile(r"20\d\d-\d\d-\d\d"),
}
STATED_ONCE = {"testing.md", "benchmarks.md"}
"""Pages that name the machine at their beginning, for all tables."""
SPECIFIED = {("distributed.md", "When something goes wrong")}
"""Sections whose times are timeouts."""


def tables(section: str) -> list[str]:
    return re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)


def missing(page: str, text: str) -> list[str]:
    """Sections with a table of measurements, and what they do not state."""
    head, *sections = re.split(r"^##+ ", text, flags=re.MULTILINE)
    found = []
    for section in [head, *sections]:
        title = section.split("\n")[0]
        if (page, title) in SPECIFIED or not any(MEASURED.search(table) for table in tables(section)):
            continue
        stated = head + section if page in STATED_ONCE else section
        found += [f"{title}: {name}" for name, pattern in REQUIRED.items() if not pattern.search(stated)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_measurements_can_be_repeated(page: str) -> None:
    assert not missing(page, (DOCS / page).read_text())


def test_a_bare_table_is_noticed() -> None:
    page = "# Page\n\n## Cost\n\n| call | ms |\n|---|---|\n| `f` | 3 |\n"
    assert missing("page.md", page) == ["Cost: command", "Cost: processor", "Cost: date"]
    assert not missing("page.md", page + "`python -m f`, AMD EPYC (Zen 4), 2026-11-28\n")
