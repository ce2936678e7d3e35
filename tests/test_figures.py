"""The figures of the page about testing are true."""

from __future__ import annotations

import re

from tests.figures import PAGE, ROOT, figures, stated


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_page_counts_what_is_there() -> None:
    """To a tenth, so that not every change has to touch the page."""
    now, said = figures(), stated(PAGE.read_text(encoding="utf-8"))
    for name, value in now.items():
        assert abs(number(said[name]) / number(value) - 1) < 0.1, f"{name}: run python -m tests.figures"


def test_the_page_names_files_and_modules_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    paths = re.findall(r"`(?:pytest )?(tests/[\w/]+\.py|(?:codegen|passes|runtime|compiled|record)/[\w/]+\.py)`", text)
    modules = re.findall(r"python -m (tests[\w.]*)", text)
    assert len(paths) > 5 and len(modules) > 5
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "tracecomp" / path).exists(), path
    for module in modules:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
