"""Messages use plain English: strings of the package have none of the constructions in `constructions.BANS`.

`pytest tests/docs/test_message_language.py -s` prints the number of findings in every directory.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.constructions import MESSAGES, Ban, Finding, advice, banned, banned_in
from tests.docs.test_language import ROOT

PACKAGES = ("tracecomp", "tracecomp_runtime")
LEAST_WORDS = 3
"""A shorter string is a name or a key."""
PYTORCH = ("Optimizer state has not been consolidated on this rank.",)
"""Beginnings of messages in PyTorch's own words."""


class Message(NamedTuple):
    """A string of the package that people read; formatted values are written `{x}`."""

    path: str
    line: int
    text: str


def literal(node: ast.AST) -> str | None:
    """Return the text of a string or f-string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{x}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module but for docstrings, which are statements."""
    text = literal(node)
    if text is not None:
        yield getattr(node, "lineno", 0), text
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        children = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    for child in children:
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from strings(child)


@cache
def messages() -> tuple[Message, ...]:
    """Return the strings of the package that have words."""
    return tuple(
        Message(path.relative_to(ROOT).as_posix(), line, text)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in strings(ast.parse(path.read_text(encoding="utf-8")))
        if " " in text and len(re.findall(r"\b[A-Za-z]{2,}\b", text.replace("{x}", ""))) >= LEAST_WORDS
    )


def findings(message: Message) -> Iterator[Finding]:
    if not message.text.startswith(PYTORCH):
        yield from banned(message.line, re.sub(r"`[^`\n]*`", "code", message.text), MESSAGES)


def in_package() -> dict[str, list[tuple[str, str]]]:
    """Return the findings of each directory, with their places."""
    found: dict[str, list[tuple[str, str]]] = {}
    for message in messages():
        folder = "/".join(Path(message.path).parts[:2])
        places = found.setdefault(folder, [])
        places += [(f"{message.path}:{f.line}", f"{f.text!r}: {f.reason}") for f in findings(message)]
    return found


@pytest.mark.parametrize("ban", banned_in(MESSAGES), ids=lambda ban: ban.sample.replace(" ", "-"))
def test_the_checker_finds_each_construction_of_messages(ban: Ban) -> None:
    assert advice(ban) in [f.reason for f in findings(Message("", 1, ban.sample))]
    assert not list(findings(Message("", 1, ban.better)))


def test_the_checker_reads_strings_and_joins_the_parts_of_formatted_ones() -> None:
    module = ast.parse('"""A docstring."""\nraise ValueError(f"{x} is " f"no {y:>{w}} view")\nf(a="is no key")')
    assert [text for _, text in strings(module)] == ["{x} is no {x} view", "is no key"]


def test_messages_have_no_banned_construction() -> None:
    """Print the number of findings per directory: `-s` shows the progress."""
    found = in_package()
    counts = Counter({folder: len(places) for folder, places in found.items() if places})
    print()
    for folder, count in counts.most_common():
        print(f"{count:6} {folder}")
    print(f"{counts.total():6} in {len(messages())} messages")
    assert not [place for places in found.values() for place in places]


@pytest.mark.parametrize("beginning", PYTORCH)
def test_each_exception_is_needed(beginning: str) -> None:
    [*texts] = [m for m in messages() if m.text.startswith(beginning)]
    assert any(list(banned(m.line, m.text, MESSAGES)) for m in texts)
