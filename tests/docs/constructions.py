"""Constructions that texts of the project must not use: one table for pages, messages, docstrings and comments.

The checkers of each kind of text are `test_language.py` (pages), `test_message_language.py` (messages) and
`test_docstring_language.py` (docstrings and comments).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Flag, auto
from typing import NamedTuple


class Texts(Flag):
    """Kinds of texts that people read."""

    PAGES = auto()
    MESSAGES = auto()
    """Strings of the package: errors, warnings, logs, help."""
    DOCSTRINGS = auto()
    COMMENTS = auto()


class Ban(NamedTuple):
    """A construction that texts must not use."""

    pattern: str
    sample: str
    better: str
    """The sample's content in plain English."""
    reason: str
    texts: Texts
    """The kinds of texts that must not use it."""


PAGES, MESSAGES, DOCSTRINGS, COMMENTS = Texts
CODE = MESSAGES | DOCSTRINGS | COMMENTS
PROSE = PAGES | CODE
NEGATIVE, VAGUE, PASSIVE, ORDER, HISTORY, TERM = (
    "say what is, not what is not",
    "name the thing or the actor",
    "use an active, concrete verb",
    "put the subject first",
    "pages have no history; the changelog has it",
    "use the field's word",
)
BANS = (
    Ban(r"\b(is|are|was|were) no\b", "it is no view", "it is not a view", NEGATIVE, PROSE),
    Ban(r"\bnot to be (had|found|seen)\b", "keepdim is not to be had", "keepdim is not supported", NEGATIVE, PROSE),
    Ban(r"\bno \w+ that (is|are|has|have|does|do) (not|no)\b", "no value that is not zero",
        "only zeros", NEGATIVE, PROSE),
    Ban(r"\bwhich there is not\b", "tile8x6, which there is not", "tile8x6 is never generated", NEGATIVE, PROSE),
    Ban(r"\bnot as many\b", "names and axes are not as many", "names and axes differ in length", NEGATIVE, PROSE),
    Ban(r"\b(nobody|somebody|anybody)\b", "nobody holds it", "it is not referenced", VAGUE, PROSE),
    Ban(r"\banother one\b", "the negative is another one", "the negative wraps around", VAGUE, PROSE),
    Ban(r"\bsuch an? one\b", "such a one can change it", "root can change it", VAGUE, PROSE),
    Ban(r"\bof (its|their|one's|his) own\b", "a function of its own", "a separate function", VAGUE, PROSE),
    Ban(r"\bby (itself|themselves)\b", "shapes are recorded by themselves", "shapes are static", VAGUE, PROSE),
    Ban(r"\bin words\b", "explain says in words why", "explain says why", VAGUE, PROSE),
    Ban(r"\bwithout a word\b", "wrong results without a word", "silent wrong results", VAGUE, PROSE),
    Ban(r"\b(is|are|was|were|be|been|being) (asked|told)\b", "numpy is asked",
        "the scheduler calls numpy", PASSIVE, PROSE),
    Ban(r"\b(is|are|was|were) looked at\b", "every call is looked at",
        "the recorder checks every call", PASSIVE, PROSE),
    Ban(r"\b(is|are|was|were|been) tried\b", "faults are tried", "tests plant faults", PASSIVE, PROSE),
    Ban(r"\bmeant\b", "what is meant", "the valid region", PASSIVE, PROSE),
    Ban(r"\b(stands?|stood|standing)\b", "a check stands behind it", "it has one check", PASSIVE, PROSE),
    Ban(r"\b(go|goes|going|went) on\b", "the sum goes on", "the sum continues", PASSIVE, PROSE),
    Ban(r"\b(came?|comes) to be\b", "sums came to be cut", "the scheduler splits sums", PASSIVE, PROSE),
    Ban(r"\b(is|are|was|were) to be\b", "the file is to be read", "read the file", PASSIVE, PROSE),
    Ban(r"\bowes?\b", "what one owes to another", "gradients from another output", PASSIVE, PROSE),
    Ban(r"\banew\b", "it is computed anew", "it is computed again", TERM, PROSE),
    Ban(r"\bbesides?\b", "sizes beside the sum", "sizes next to the sum", TERM, PROSE),
    Ban(r"\b(turns?|turned|turning) (squares|matrices|planes|tiles|in registers|first)\b", "turned in registers",
        "transposed in registers", TERM, PROSE),
    Ban(r"\b(lies?|lain|lying)\b", "rows lie along the sum", "rows are contiguous", TERM, PROSE),
    Ban(r"\blight(s|ed)? (each other )?up\b", "source and loops light each other up",
        "selection is linked", TERM, PROSE),
    Ban(r"\b(hold|holds|held) (\w+ ){0,5}against\b", "sizes are held against it",
        "sizes are compared with it", TERM, PROSE),
    Ban(r"\bmended\b", "the fault was mended", "the fault was fixed", TERM, PROSE),
    Ban(r"\bsince then\b", "since then sums are slower", "sums are slower", HISTORY, PROSE),
    Ban(r"\(\d[\d.,]*( \w+)? before\b|\d before\)|\bbefore: ", "1.07 (1.40 before)", "1.07", HISTORY, PROSE),
    Ban(r"(?:^|(?<=[.!?] ))(\*\*)?(Of|What|Where|That(?! (is|was|means)\b)) (?![^.]*\?)",
        "Where it fails, Python runs.", "Python runs if it fails.", ORDER, PROSE),
    Ban(r"^(what|whose) ", "what the server keeps", "values in the store", ORDER, CODE),
    Ban(r"\b(is|are|was|were) there twice\b", "{name} is there twice", "{name} is repeated", VAGUE, CODE),
    Ban(r"\bnothing that\b", "{name} is nothing that a file can hold", "a file cannot hold {name}", NEGATIVE, CODE),
    Ban(r"\bwhat (is|are|was|were|has|it)\b", "it reads what is old", "it reads old values", VAGUE, CODE),
    Ban(r"\b(looks?|looked|looking) at\b", "a view that looks at it", "a view of it", VAGUE, CODE),
    Ban(r"\bgives or does\b", "it gives or does something else", "its result differs", VAGUE, CODE),
    Ban(r"\b(tells?|told) of\b", "the header tells of 3 bytes", "the header declares 3 bytes", VAGUE, CODE),
    Ban(r"\bthere (is|are) of\b", "width is 1 to what there is of load", "width must be 1 to its size",
        VAGUE, CODE),
    Ban(r"\b(is|are) \d+ at least\b", "width is 1 at least", "width must be at least 1", ORDER, CODE),
    Ban(r"\b(have|has|had|of|in|with) another (\w+ )?(type|dtype|shape|digest|order|derivative|state)\b",
        "a result has another type", "a result has a different type", TERM, MESSAGES),
    Ban(r"\bin another way\b", "inputs share memory in another way", "inputs share other memory", VAGUE, CODE),
)  # fmt: skip
EXCEPTIONS = (
    "there is no", "there are no", "there was no", "there were no", "is no longer", "are no longer", "is no more",
    "are no more", "stand-in", "stand-ins", "stand-alone",
)  # fmt: skip
"""Phrases that a pattern finds and that are plain English."""
_EXCEPTION = re.compile(rf"\b({'|'.join(EXCEPTIONS)})\b", re.IGNORECASE)


class Finding(NamedTuple):
    """A place in a text."""

    line: int
    text: str
    reason: str


def banned(line: int, text: str, texts: Texts) -> Iterator[Finding]:
    """Yield the constructions that a paragraph of a text of this kind must not use."""
    allowed = [match.span() for match in _EXCEPTION.finditer(text)]
    for ban in banned_in(texts):
        for match in re.finditer(ban.pattern, text, re.IGNORECASE if ban.reason != ORDER else 0):
            if not any(first <= match.start() < last for first, last in allowed):
                yield Finding(line, text[max(match.start() - 30, 0) : match.end() + 30], advice(ban))


def banned_in(texts: Texts) -> list[Ban]:
    """Return the rows of the table for a kind of texts."""
    return [ban for ban in BANS if texts in ban.texts]


def advice(ban: Ban) -> str:
    return f"{ban.reason}: {ban.better!r} instead of {ban.sample!r}"
