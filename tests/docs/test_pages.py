"""The documentation shows the code's real output; ``pytest tests/docs --update`` rewrites it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracecomp
from tests.docs.blocks import with_real_output
from tracecomp.codegen.text.native import compiler_version

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/capture.md",
    "docs/dispatch.md",
    "docs/eager.md",
    "docs/export.md",
    "docs/from-python-to-assembly.md",
    "docs/numerics.md",
    "docs/onnx.md",
    "docs/program-files.md",
    "docs/seeing-inside.md",
    "docs/serving.md",
    "docs/sparse.md",
    "docs/moving-from-pytorch.md",
    "docs/training.md",
    "docs/wrong-results.md",
    "docs/writing-captured-programs.md",
]


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    """Restore the number of threads, which the README's program sets for the whole process."""
    before = tracecomp.get_num_threads()
    yield
    tracecomp.set_num_threads(before)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", PAGES)
def test_outputs_on_the_page_are_those_of_its_code(
    page: str, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / page
    monkeypatch.chdir(tmp_path)  # examples save files
    if page == "docs/onnx.md":
        pytest.importorskip("onnx")
    if page == "docs/serving.md":
        pytest.importorskip("pydantic")
    if set(re.findall(r"this is LLVM (\d+)", path.read_text())) - set(re.findall(r"LLVM \((\d+)", compiler_version())):
        pytest.skip("made with another version of LLVM")
    found = with_real_output(path.read_text(), tmp_path)
    if pytestconfig.getoption("--update"):
        path.write_text(found)
    assert found == path.read_text(), "if this change is meant: pytest tests/docs --update"


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    assert with_real_output(page, tmp_path) == page.replace("3", "2")


def test_every_page_is_in_the_index_and_once_in_the_sites_menu() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    index, menu = (docs / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    reference = {page for page in pages if page.startswith("api/")}
    assert pages - reference == set(re.findall(r"\]\(([\w/-]+\.md)\)", index)) - reference
    assert sorted([*pages, "index.md"]) == sorted(re.findall(r"^ +- (?:.*: )?([\w/.-]+\.md)$", menu, re.MULTILINE))


def test_the_home_page_has_the_readmes_program_and_output() -> None:
    home, readme = ((ROOT / name).read_text() for name in ("docs/index.md", "README.md"))
    first = re.search(r"```python\n.*?^```\n\n```text\n.*?^```$", readme, re.MULTILINE | re.DOTALL)
    assert first
    assert first[0] in home
