"""Saves that are interrupted, killed or find the disk full: the old file or the new one, whole, and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracecomp as tc
from tests.base.test_interrupts import SIGNAL, handled, interrupted_at, spread
from tracecomp import nn
from tracecomp.base import atomic
from tracecomp.distributed import checkpoint
from tracecomp.inspect.archive import write_archive
from tracecomp.ir.graph import Graph
from tracecomp.ir.types import TensorType, float32
from tracecomp.serialization import safetensors

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    # Python closes files and archives that an interrupt has left.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

MODULE = nn.Linear(3, 2)
X = tc.ones(4, 3)
Save = Callable[[Path], Any]


def graph() -> Graph:
    made = Graph("g")
    made.add_output(made.apply("exp", made.add_input(TensorType(float32, (2,)), "x")))
    return made


SAVERS: dict[str, Save] = {
    "save": lambda path: tc.save({"x": tc.arange(1000)}, path),
    "safetensors": lambda path: safetensors.save_file({"x": tc.arange(1000)}, path),
    "program": lambda path: tc.compile(MODULE).save(path, X, kind="graph"),
    "export": lambda path: tc.export.save(tc.export.export(MODULE, (X,)), path),
    "jit": lambda path: tc.jit.save(tc.jit.script(MODULE), path),
    "onnx": lambda path: tc.onnx.export(MODULE, (X,), path, dynamo=True),
    "archive": lambda path: write_archive(path, "report", graph(), [], False),
}


def content(path: Path) -> bytes:
    """Return the content of the file; AssertionError if its folder has other files."""
    assert os.listdir(path.parent) == [path.name]
    return path.read_bytes()


def new_content(save: Save, path: Path) -> bytes:
    """Return the file that ``save`` writes, and import its modules."""
    save(path)
    return content(path)


def writing(save: Save, path: Path) -> Callable[[], None]:
    """The part of ``save`` that writes its file."""
    given: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for m in sys.modules.values() if "write_file" in vars(m)]:
            patch.setattr(module, "write_file", lambda *args: given.append(args))
        save(path)
    ((where, write),) = given
    return lambda: atomic.write_file(where, write)


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("name", SAVERS)
def test_ctrl_c_at_any_moment(name: str, unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "file"
    new = new_content(SAVERS[name], path)
    write = writing(SAVERS[name], path)
    seen = set()
    with handled(SIGNAL):
        for number in spread(interrupted_at(write, 0), 80):
            path.write_bytes(b"old")
            interrupted_at(write, number)
            seen.add(content(path) != b"old")
            assert content(path) in (b"old", new)
    assert seen == {False, True}


def supports_unnamed(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE))
    except (AttributeError, OSError):
        return False
    return True


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("name", ["save", "program"])
def test_killed_at_any_moment(name: str, exists: bool, tmp_path: Path) -> None:
    """Only a whole file that replaces an old one has a temporary name, between two system calls."""
    path = tmp_path / "file"
    new = new_content(SAVERS[name], path)
    write = writing(SAVERS[name], path)
    with handled(SIGNAL):
        moments = interrupted_at(write, 0)
    for number in spread(moments, 40):
        path.unlink()
        if exists:
            path.write_bytes(b"old")
        child = os.fork()
        if not child:
            signal.signal(SIGNAL, signal.SIG_DFL)
            interrupted_at(write, number)
            os._exit(0)
        os.waitpid(child, 0)
        left = [n for n in os.listdir(tmp_path) if n != path.name]
        if exists or path.exists():
            assert path.read_bytes() in (b"old", new)
        else:
            path.touch()
        for extra in left if supports_unnamed(tmp_path) else ():
            assert exists and (tmp_path / extra).read_bytes() == new
            (tmp_path / extra).unlink()


@pytest.mark.parametrize("name", SAVERS)
def test_a_full_disk(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    new = new_content(SAVERS[name], path)
    write = writing(SAVERS[name], path)
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 1, len(new) // 2, len(new) - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(OSError):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert content(path) == b"old"


def test_a_checkpoint_that_is_interrupted_is_whole_or_absent(tmp_path: Path) -> None:
    state = {"x": tc.arange(100)}
    checkpoint.save(state, checkpoint_id=tmp_path / "first")
    with handled(SIGNAL):
        moments = interrupted_at(lambda: checkpoint.save(state, checkpoint_id=tmp_path / "second"), 0)
        for number in spread(moments, 60):
            folder = tmp_path / str(number)
            interrupted_at(lambda folder=folder: checkpoint.save(state, checkpoint_id=folder), number)  # type: ignore[misc]
            names = os.listdir(folder) if folder.exists() else []
            assert not [n for n in names if n.endswith(".tmp")], number
            if ".metadata" in names:
                loaded = {"x": tc.zeros(100, dtype=tc.int64)}
                checkpoint.load(loaded, checkpoint_id=folder)
                assert loaded["x"].equal(state["x"])
