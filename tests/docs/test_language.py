"""Pages use plain English: each page is free of the constructions in `BANNED` and of long sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples")
DONE = sorted(
    {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    | {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")}
)
"""Every page that people read."""
LONGEST_SENTENCE = 25
"""Words, not counting code. A longer sentence has to be read twice."""


class Ban(NamedTuple):
    """A construction that pages must not use."""

    pattern: str
    sample: str
    better: str
    """The sample's content in plain English."""
    reason: str


NEGATIVE, VAGUE, PASSIVE, ORDER, HISTORY, TERM = (
    "say what is, not what is not",
    "name the thing or the actor",
    "use an active, concrete verb",
    "put the subject first",
    "pages have no history; the changelog has it",
    "use the field's word",
)
BANNED = (
    Ban(r"\b(is|are|was|were) no\b", "it is no view", "it is not a view", NEGATIVE),
    Ban(r"\bnot to be (had|found|seen)\b", "keepdim is not to be had", "keepdim is not supported", NEGATIVE),
    Ban(r"\bno \w+ that (is|are|has|have|does|do) (not|no)\b", "no value that is not zero", "only zeros", NEGATIVE),
    Ban(r"\bwhich there is not\b", "tile8x6, which there is not", "tile8x6 is never generated", NEGATIVE),
    Ban(r"\bnot as many\b", "names and axes are not as many", "names and axes differ in length", NEGATIVE),
    Ban(r"\b(nobody|somebody|anybody)\b", "nobody holds it", "it is not referenced", VAGUE),
    Ban(r"\banother one\b", "the negative is another one", "the negative wraps around", VAGUE),
    Ban(r"\bsuch an? one\b", "such a one can change it", "root can change it", VAGUE),
    Ban(r"\bof (its|their|one's|his) own\b", "a function of its own", "a separate function", VAGUE),
    Ban(r"\bby (itself|themselves)\b", "shapes are recorded by themselves", "shapes are static", VAGUE),
    Ban(r"\bin words\b", "explain says in words why", "explain says why", VAGUE),
    Ban(r"\bwithout a word\b", "wrong results without a word", "silent wrong results", VAGUE),
    Ban(r"\b(is|are|was|were|be|been|being) (asked|told)\b", "numpy is asked", "the scheduler calls numpy", PASSIVE),
    Ban(r"\b(is|are|was|were) looked at\b", "every call is looked at", "the recorder checks every call", PASSIVE),
    Ban(r"\b(is|are|was|were|been) tried\b", "faults are tried", "tests plant faults", PASSIVE),
    Ban(r"\bmeant\b", "what is meant", "the valid region", PASSIVE),
    Ban(r"\b(stands?|stood|standing)\b", "a check stands behind it", "it has one check", PASSIVE),
    Ban(r"\b(go|goes|going|went) on\b", "the sum goes on", "the sum continues", PASSIVE),
    Ban(r"\b(came?|comes) to be\b", "sums came to be cut", "the scheduler splits sums", PASSIVE),
    Ban(r"\b(is|are|was|were) to be\b", "the file is to be read", "read the file", PASSIVE),
    Ban(r"\bowes?\b", "what one owes to another", "gradients from another output", PASSIVE),
    Ban(r"\banew\b", "it is computed anew", "it is computed again", TERM),
    Ban(r"\bbesides?\b", "sizes beside the sum", "sizes next to the sum", TERM),
    Ban(r"\b(turns?|turned|turning) (squares|matrices|planes|tiles|in registers|first)\b", "turned in registers",
        "transposed in registers", TERM),
    Ban(r"\b(lies?|lain|lying)\b", "rows lie along the sum", "rows are contiguous", TERM),
    Ban(r"\blight(s|ed)? (each other )?up\b", "source and loops light each other up", "selection is linked", TERM),
    Ban(r"\b(hold|holds|held) (\w+ ){0,5}against\b", "sizes are held against it", "sizes are compared with it", TERM),
    Ban(r"\bmended\b", "the fault was mended", "the fault was fixed", TERM),
    Ban(r"\bsince then\b", "since then sums are slower", "sums are slower", HISTORY),
    Ban(r"\(\d[\d.,]*( \w+)? before\b|\d before\)|\bbefore: ", "1.07 (1.40 before)", "1.07", HISTORY),
    Ban(r"(?:^|(?<=[.!?] ))(\*\*)?(Of|What|Where|That(?! (is|was|means)\b)) (?![^.]*\?)",
        "Where it fails, Python runs.", "Python runs if it fails.", ORDER),
)  # fmt: skip
EXCEPTIONS = (
    "there is no", "there are no", "there was no", "there were no", "is no longer", "are no longer", "is no more",
    "are no more", "stand-in", "stand-ins", "stand-alone",
)  # fmt: skip
"""Phrases that a pattern finds and that are plain English."""
_EXCEPTION = re.compile(rf"\b({'|'.join(EXCEPTIONS)})\b", re.IGNORECASE)


class Finding(NamedTuple):
    """A place on a page."""

    line: int
    text: str
    reason: str


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


def banned(line: int, text: str, bans: Sequence[Ban] = BANNED) -> Iterator[Finding]:
    """Yield the constructions that a paragraph must not use."""
    allowed = [match.span() for match in _EXCEPTION.finditer(text)]
    for ban in bans:
        for match in re.finditer(ban.pattern, text, re.IGNORECASE if ban.reason != ORDER else 0):
            if not any(first <= match.start() < last for first, last in allowed):
                yield Finding(line, text[max(match.start() - 30, 0) : match.end() + 30], advice(ban))


def advice(ban: Ban) -> str:
    return f"{ban.reason}: {ban.better!r} instead of {ban.sample!r}"


def findings(page: str) -> Iterator[Finding]:
    """Yield banned constructions and long sentences."""
    for line, text in paragraphs(page):
        yield from banned(line, text)
        for sentence in sentences(text):
            words = [word for word in re.sub(r"\bcode\b", "", sentence).split() if re.search(r"\w", word)]
            if len(words) > LONGEST_SENTENCE:
                yield Finding(line, " ".join(words[:8]), f"{len(words)} words: split the sentence")


def on_page(name: str) -> list[Finding]:
    return list(findings((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("ban", BANNED, ids=lambda ban: ban.sample.replace(" ", "-"))
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
    assert any(re.search(ban.pattern, phrase) for ban in BANNED)
    assert not list(findings(f"{phrase} operand"))
