"""The page of the documents' features: every row names programs and tests that exist, and the totals are right."""

from __future__ import annotations

import re
from collections import Counter

from tests.ecosystem.programs import PROGRAMS
from tests.ecosystem.runner import ROOT
from tests.seeds.test_programs import FILES

PAGE = ROOT / "docs" / "reports" / "documents.md"
ROWS = 297
WORDS = {
    "runs": "run", "refused": "refused, as by PyTorch", "impossible": "impossible here", "apart": "tested apart",
}  # fmt: skip


def rows() -> list[list[str]]:
    """Number, feature, verdict and reason of each row."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line[2:-2].split(" | ") for line in lines if re.match(r"\| \d+ \|", line)]


def known() -> dict[str, set[str]]:
    """Return the names that a row may use, by the word before them."""
    written = {f"{path.stem}.{name}" for path in FILES for name in re.findall(r"^def (\w+)", path.read_text(), re.M)}
    return {"programs": written, "libraries": {p.__name__ for programs in PROGRAMS.values() for p in programs}}


def test_rows_and_totals() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, ROWS + 1))
    counts = Counter(row[2] for row in rows())
    total = ", ".join(f"{counts[word]} {said}" for word, said in WORDS.items())
    assert set(counts) == set(WORDS) and f"{ROWS} rows: {total}." in PAGE.read_text(encoding="utf-8")


def test_rows_name_what_exists() -> None:
    names = known()
    for number, _, verdict, reason in rows():
        parts = re.findall(r"(programs|libraries|tests): ([^;(]+)", reason)
        assert parts or verdict in ("impossible", "apart"), number
        for kind, listed in parts:
            for name in listed.strip().split(", "):
                assert (ROOT / name).exists() if kind == "tests" else name in names[kind], (number, name)
