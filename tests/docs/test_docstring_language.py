"""Docstrings and comments use plain English: no constructions of `constructions.BANS` and no long sentences.

Each directory is a test, so that none takes long on a busy machine.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.docs.constructions import COMMENTS, DOCSTRINGS, Ban, Finding, Texts, advice, banned, banned_in
from tests.docs.test_language import LONGEST_SENTENCE, ROOT, sentences, words
from tests.docs.test_message_language import PACKAGES

FOLDERS = (*PACKAGES, "benchmarks", "examples", "tests", "tools")

DIRECTIVE = re.compile(r"#\s*(type:|noqa|fmt:|pragma|ruff:|mypy:|!)")
"""A comment that only tools read."""


class Prose(NamedTuple):
    """A paragraph of a docstring or comment, without its code."""

    path: str
    line: int
    """The line where its docstring or comment starts."""
    text: str
    texts: Texts


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings that are statements: docstrings, also those of attributes and constants."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments; full-line comments on consecutive lines are one."""
    start, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or DIRECTIVE.match(token.string):
            continue
        line, column = token.start
        alone = not token.line[:column].strip()
        if lines and not (alone and last == line - 1):
            yield start, "\n".join(lines)
            lines = []
        start, last = (start if lines else line), (line if alone else 0)
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield start, "\n".join(lines)


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and list entries on one line each; examples (`>>>`) and indented blocks are left out."""
    for part in re.split(r"\n[ \t]*\n", inspect.cleandoc(re.sub(r"`[^`\n]*`", "code", text))):
        if not part.startswith("    "):
            for entry in re.split(r"\n\s*[*-] ", re.sub(r"\s*>>> .*", "", part, flags=re.DOTALL)):
                yield " ".join(entry.removeprefix("* ").split())


def prose_of(path: str, source: str) -> Iterator[Prose]:
    for read, texts in ((docstrings, DOCSTRINGS), (comments, COMMENTS)):
        for line, text in read(source):
            yield from (Prose(path, line, part, texts) for part in paragraphs(text))


def directories() -> list[str]:
    """Return the directories that hold modules."""
    modules = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in modules})


def prose(directory: str) -> Iterator[Prose]:
    """Yield the paragraphs of the docstrings and comments of the modules in a directory."""
    for path in sorted((ROOT / directory).glob("*.py")):
        yield from prose_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def findings(part: Prose) -> Iterator[Finding]:
    """Yield banned constructions and long sentences."""
    yield from banned(part.line, part.text, part.texts)
    for sentence in sentences(part.text):
        if len(words(sentence)) > LONGEST_SENTENCE:
            yield Finding(part.line, sentence[:50], f"{len(words(sentence))} words: split the sentence")


def reasons(source: str) -> list[str]:
    return [f.reason for part in prose_of("", source) for f in findings(part)]


@pytest.mark.parametrize("write", ['"""{}"""\n', "# {}\n", "x = 1  # {}\n"], ids=["docstring", "comment", "trailing"])
@pytest.mark.parametrize("ban", banned_in(DOCSTRINGS), ids=lambda ban: ban.sample.replace(" ", "-"))
def test_the_checker_finds_each_banned_construction(ban: Ban, write: str) -> None:
    assert advice(ban) in reasons(write.format(ban.sample))
    assert not reasons(write.format(ban.better))


def test_the_checker_reads_docstrings_comments_and_phrases_that_span_lines() -> None:
    assert len(reasons("class C:\n    x: int\n    '''It is\n    no view.'''\n")) == 1
    assert len(reasons("x = 1\n# It is\n# no view.\n")) == 1
    assert len(reasons("x = 1  # It is\n# no view.\n")) == 0
    assert len(reasons("# " + "word " * (LONGEST_SENTENCE + 1) + "\n")) == 1
    assert not reasons("# " + "word " * LONGEST_SENTENCE + "`code`\n")
    assert not reasons('"""Grammar:\n\n    a = is no view\n\n* is\n* no view\n"""\n')
    assert not reasons('"""`is no view`\n\n>>> "is no view"\n"""\nx = "is no view"\n')
    places = [part.line for part in prose_of("", "x = 1\n# a\n# b\n\n# c\ny = 2  # d\nz = 3  # e\n# noqa: f\n")]
    assert places == [2, 5, 6, 7]


@pytest.mark.parametrize("directory", directories())
def test_docstrings_and_comments_have_no_findings(directory: str) -> None:
    found = [(part.path, f) for part in prose(directory) for f in findings(part)]
    assert not [f"{path}:{f.line} {f.text!r}: {f.reason}" for path, f in found]
