"""The glossary names the files in which each thing happens; whoever searches the code for its word finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TWELVE = (
    "epilogue fusion", "im2col", "loop tiling", "k-blocking", "prepacking", "dynamic shapes", "rematerialization",
    "guard", "liveness", "buffer reuse", "loop peeling", "winograd convolution",
)  # fmt: skip


def entries() -> dict[str, list[str]]:
    """Words of a row, joined by commas -> the files that it names."""
    rows = re.findall(r"^\| (?!word)(.*?) \|.*?\| (`[^|]*`) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    return {words: re.findall(r"`([\w/]+\.py)`", files) for words, files in rows}


def spellings(words: str) -> list[str]:
    """Return the search patterns: each word of the row separately, without its ending."""
    return [re.sub(r"(ization|ing|s)$", "", word.strip(" ()").lower()) for word in re.split(r",|\(", words)]


@pytest.mark.parametrize("words", entries())
def test_a_search_for_the_word_finds_where_it_happens(words: str) -> None:
    files = entries()[words]
    assert files
    for file in files:
        text = re.sub(r"\s+", " ", (ROOT / "tracecomp" / file).read_text().lower())
        assert any(word in text for word in spellings(words)), f"{file} does not say {words}"


def test_the_glossary_has_the_words_that_people_search_for() -> None:
    known = {word.strip().lower() for words in entries() for word in words.split(",")}
    assert set(TWELVE) <= known
