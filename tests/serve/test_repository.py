"""Folders of models and settings files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracecomp.base.errors import TracecompError
from tracecomp.serve.repository import entries


def made(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def test_files_and_versions(tmp_path: Path) -> None:
    made(tmp_path, "a.onnx", "b/model.pt2", "c/10/x.tcp", "c/9/x.tcp", "c/9.1/x.tcp", "c/notes/x.tcp", "README.md")
    found = [(e.name, e.version, str(e.path.relative_to(tmp_path))) for e in entries(tmp_path)]
    assert found == [
        ("a", "1", "a.onnx"), ("b", "1", "b/model.pt2"), ("c", "9", "c/9/x.tcp"), ("c", "9.1", "c/9.1/x.tcp"),
        ("c", "10", "c/10/x.tcp"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (("a.onnx", "a.tcp"), "the same version"),
        (("a.onnx", "a/01/m.onnx"), "the same version"),
        (("a/1/m.onnx", "a/1/n.onnx"), "several model files"),
        (("a b.onnx",), "letters, digits"),
    ],
)
def test_ambiguous_folders(tmp_path: Path, paths: tuple[str, ...], text: str) -> None:
    with pytest.raises(TracecompError, match=text):
        entries(made(tmp_path, *paths))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "the file: Invalid JSON"),
        ('{"max_batch": 8}', "max_batch: Unexpected keyword argument"),
        ('{"max_batch_size": "eight"}', "max_batch_size: Input should be a valid integer"),
        ('{"max_delay_ms": NaN}', "max_delay_ms"),
        ('{"max_seconds": 0}', "max_seconds must be positive"),
        ('{"max_memory_mb": 0}', "max_memory_mb must be positive"),
    ],
)
def test_wrong_settings(tmp_path: Path, content: str, text: str) -> None:
    made(tmp_path, "a.onnx")
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(TracecompError, match=text):
        entries(tmp_path)


def test_settings(tmp_path: Path) -> None:
    made(tmp_path, "a/2/m.onnx")
    (tmp_path / "a/2/model.json").write_text('{"max_batch_size": 8, "max_delay_ms": 2}')
    (entry,) = entries(tmp_path)
    assert (entry.settings.max_batch_size, entry.settings.max_delay_ms) == (8, 2.0)


def test_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TracecompError, match="not a folder"):
        entries(tmp_path / "none")
