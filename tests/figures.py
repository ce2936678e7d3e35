"""Figures of docs/testing.md that follow from the sources: ``python -m tests.figures`` prints and writes them.

Figures that take longer have a separate command, which the page names; the page gives their date and processor.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "testing.md"
SENTENCE = re.compile(
    r"(?P<functions>[\d,]+) test functions in (?P<tests>[\d,]+) lines, (?P<share>\d\.\d\d) lines of test for each of\s+"
    r"the\s+package's (?P<package>[\d,]+)"
)


def lines(folder: str) -> int:
    """Lines of Python below ``folder``."""
    return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / folder).rglob("*.py"))


def figures() -> dict[str, str]:
    """Return the current figures of the page's sentence."""
    tests, package = lines("tests"), lines("tracecomp") + lines("tracecomp_runtime")
    texts = (p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    functions = sum(len(re.findall(r"^\s*def test_", text, re.MULTILINE)) for text in texts)
    return {
        "functions": f"{functions:,}", "tests": f"{tests:,}", "share": f"{tests / package:.2f}",
        "package": f"{package:,}",
    }  # fmt: skip


def stated(text: str) -> dict[str, str]:
    """Return the figures that the page states; ValueError if the sentence is missing."""
    found = SENTENCE.search(text)
    if found is None:
        raise ValueError(f"{PAGE} has no sentence like {SENTENCE.pattern}")
    return found.groupdict()


def main() -> None:
    text, now = PAGE.read_text(encoding="utf-8"), figures()
    stated(text)
    sentence = (
        f"{now['functions']} test functions in {now['tests']} lines, {now['share']} lines of test for each of\n"
        f"the package's {now['package']}"
    )
    PAGE.write_text(SENTENCE.sub(sentence, text), encoding="utf-8")
    print(sentence)


if __name__ == "__main__":
    main()
