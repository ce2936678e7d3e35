"""Graph breaks link the section of the page that applies to their cause."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.base.capture_guide import PAGE, Section
from tracecomp.base.errors import CaptureError
from tracecomp.base.user_warnings import silenced

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_sections_and_nothing_else() -> None:
    page = (ROOT / "docs" / "writing-captured-programs.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
    assert anchors == [section.anchor for section in Section]


def test_the_address_is_that_of_the_projects_site() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"{project['urls']['Documentation']}/writing-captured-programs/" == PAGE


def makes_text(x: Any) -> Any:
    return f"{(x * 2).sum()}"


def depends_on_values(x: Any) -> Any:
    return x * round(x.sum().item(), 3)


def returns_an_error(x: Any) -> Any:
    return ValueError(x * 2)


def resizes(x: Any) -> Any:
    return (x * 1).resize_(9)


def is_excluded(x: Any) -> Any:
    return torch.compiler.disable(torch.sin)(x * 2)


def opens_a_file(x: Any) -> Any:
    open("/dev/null").close()
    return x * 2


BREAKS = {
    makes_text: Section.NUMBERS, depends_on_values: Section.NUMBERS, returns_an_error: Section.STATE,
    resizes: Section.MEMORY, is_excluded: Section.EXCLUDE, opens_a_file: Section.IMPURE,
}  # fmt: skip


@pytest.mark.parametrize("program", BREAKS, ids=lambda program: program.__name__)
def test_warning_error_and_explanation_link_the_section(program: Any) -> None:
    def call(compiled: Any) -> None:
        for n in range(70):
            compiled(torch.ones(2) * n)

    link = f"See {BREAKS[program].link}"
    compiled = torch.compile(program, backend="interpret")
    with pytest.warns(UserWarning) as seen:
        call(compiled)
    warned = [str(w.message) for w in seen if "graph break in" in str(w.message)]
    assert warned and all(text.endswith(link) for text in warned)
    assert link in str(compiled.explain())
    with silenced(), pytest.raises(CaptureError, match=f"{re.escape(link)}$"):
        call(torch.compile(program, backend="interpret", fullgraph=True))
