"""Pages use plain English: each page is free of the constructions in `constructions.BANS` and of long sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.constructions import BANS, EXCEPTIONS, PAGES, Ban, Finding, advice, banned, banned_in

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples")
DONE = sorted(
    {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    | {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")}
)
"""Every page that people read."""
LONGEST_SENTENCE = 25
"""Words, not counting code. A longer sentence has to be read twice."""


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield prose with its line: paragraphs, list entries and cells; code, links' targets and headings are left out."""
    blank = re.sub(r"^```.*?^```$", lambda code: "\n" * code[0].count("\n"), page, flags=re.MULTILINE | re.DOTALL)
    blank = re.sub(r"`[^`\n]*`", "code", blank)
    blank = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", blank)
    start, lines = 1, list[str]()
    for number, line in enumerate([*blank.split("\n"), ""], 1):
        entry = re.match(r" *([*-]|\d+\.) ", line)
        if lines and (not line.strip() or entry or line.startswith(("#", "|"))):
            yield start, " ".join(lines)
            lines = []
        if line.startswith("|"):
            yield from ((number, cell.strip()) for cell in line.split("|") if cell.strip(" -:"))
        elif line.strip() and not line.startswith("#"):
            start = start if lines else number
            lines.append((line[entry.end() :] if entry else line).strip())


def sentences(text: str) -> list[str]:
    """Split a paragraph; a colon ends a sentence as well, since a list or an example follows it."""
    return [s for s in re.split(r"(?<=[.!?:])\**\s+", text) if s]


def words(sentence: str) -> list[str]:
    """Return the words of a sentence, without code."""
    return [word for word in re.sub(r"\bcode\b", "", sentence).split() if re.search(r"\w", word)]


def findings(page: str) -> Iterator[Finding]:
    """Yield banned constructions and long sentences."""
    for line, text in paragraphs(page):
        yield from banned(line, text, PAGES)
        for sentence in sentences(text):
            found = words(sentence)
            if len(found) > LONGEST_SENTENCE:
                yield Finding(line, " ".join(found[:8]), f"{len(found)} words: split the sentence")


def on_page(name: str) -> list[Finding]:
    return list(findings((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("ban", banned_in(PAGES), ids=lambda ban: ban.sample.replace(" ", "-"))
def test_the_checker_finds_each_banned_construction(ban: Ban) -> None:
    assert [f.reason for f in findings(f"* {ban.sample}\n")] == [advice(ban)]
    assert not list(findings(f"* {ban.better}\n"))
    broken = ban.sample.replace(" ", "\n", 1)  # a phrase may span two lines
    assert list(findings(f"{broken}\n"))


def test_the_checker_reads_prose_only() -> None:
    text = "# What is no view\n\n```sh\nis no view\n```\n\n`is no view`, [a](is-no-view)\n\nThere is no view.\n"
    assert not list(findings(text))
    assert [f.line for f in findings("One line.\n\n| a | is no view |\n")] == [3]
    assert [f.line for f in findings("word " * (LONGEST_SENTENCE + 1))] == [1]


@pytest.mark.parametrize("name", DONE)
def test_a_finished_page_has_no_findings(name: str) -> None:
    assert on_page(name) == []


@pytest.mark.parametrize("phrase", EXCEPTIONS)
def test_an_exception_is_found_by_a_pattern_and_allowed(phrase: str) -> None:
    assert any(re.search(ban.pattern, phrase) for ban in BANS)
    assert not list(findings(f"{phrase} operand"))
