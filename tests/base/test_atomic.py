"""Saving is atomic: files are whole or absent and keep their permissions, and only regular files are replaced."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.base import atomic
from tracecomp.serialization import load, safetensors, save

Save = Callable[[Any, Any], None]
SAVERS: dict[str, Save] = {
    "save": lambda value, path: save({"x": value}, path),
    "safetensors": lambda value, path: safetensors.save_file({"x": value}, path),
}
LOADERS: dict[str, Callable[[Any], Any]] = {
    "save": lambda path: load(path)["x"].tolist(),
    "safetensors": lambda path: safetensors.load_file(path)["x"].tolist(),
}


@pytest.fixture(params=SAVERS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


FULL = """
import resource, sys
import tracecomp as tc
from tests.base.test_atomic import SAVERS
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    SAVERS[sys.argv[1]](tc.zeros(1_000_000), sys.argv[2])
except OSError as error:
    print(error.errno)
"""


@pytest.mark.sampled(2)
def test_a_file_that_becomes_too_large_for_its_disk_leaves_the_old_one(how: str, tmp_path: Path) -> None:
    for path, old in ((tmp_path / "old", [1.0]), (tmp_path / "new", None)):
        if old:
            SAVERS[how](tc.tensor(old), path)
        done = subprocess.run(
            [sys.executable, "-c", FULL, how, str(path)], capture_output=True, text=True, timeout=100, check=True
        )
        assert done.stdout.split() == [str(errno.EFBIG)]
    assert [p.name for p in tmp_path.iterdir()] == ["old"] and LOADERS[how](tmp_path / "old") == [1.0]


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("when", ["fsync", "replace"])
def test_a_fault_in_the_last_moment_leaves_the_old_file(
    how: str, fault: BaseException, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SAVERS[how](tc.tensor([1.0]), tmp_path / "x")

    def fail(*_: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(os, when, fail)
        with pytest.raises(type(fault)):
            SAVERS[how](tc.tensor([2.0]), tmp_path / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and LOADERS[how](tmp_path / "x") == [1.0]


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o644, 0o664, 0o666, 0o400 | 0o200])
def test_an_old_file_keeps_its_mode(how: str, kept: int, tmp_path: Path, umask: Callable[[int], int]) -> None:
    path = tmp_path / "x"
    path.touch()
    path.chmod(kept)
    umask(0o077)
    SAVERS[how](tc.tensor([2.0]), path)
    assert mode(path) == kept and LOADERS[how](path) == [2.0]


@pytest.mark.parametrize("mask", [0, 0o022, 0o027, 0o077])
def test_a_new_file_has_the_mode_that_the_umask_leaves(
    how: str, mask: int, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(mask)
    SAVERS[how](tc.tensor([2.0]), tmp_path / "x")
    assert mode(tmp_path / "x") == 0o666 & ~mask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_old_file_keeps_its_owner(how: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.chown(path, 12345, 54321)
    path.chmod(0o640)
    SAVERS[how](tc.tensor([2.0]), path)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (12345, 54321, 0o640)


def test_a_group_that_cannot_be_kept_gets_no_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(0o664)

    def not_permitted(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", not_permitted)
    save(1, tmp_path / "x")
    assert mode(tmp_path / "x") == 0o644


def test_while_a_private_file_is_written_nobody_else_can_read_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: Callable[[int], int]
) -> None:
    path, seen = tmp_path / "x", []
    path.touch()
    path.chmod(0o600)
    umask(0)
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda f: (seen.append(os.fstat(f).st_mode & 0o077), sync(f))[1])
    taken = atomic._take_over
    monkeypatch.setattr(atomic, "_take_over", lambda h, o: (seen.append(os.fstat(h).st_mode & 0o077), taken(h, o))[1])
    SAVERS[how](tc.tensor([2.0]), path)
    assert seen[:2] == [0, 0]


def test_links_are_followed(how: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub/real")
    (tmp_path / "further").symlink_to(tmp_path / "link")
    for value in (1.0, 2.0):  # first to nothing yet, then to a file
        SAVERS[how](tc.tensor([value]), tmp_path / "further")
        assert LOADERS[how](tmp_path / "sub" / "real") == [value]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "further").is_symlink()
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["real"]


def test_devices_stay_devices(how: str) -> None:
    before = os.stat("/dev/null")
    SAVERS[how](tc.ones(3), "/dev/null")
    assert (os.stat("/dev/null").st_ino, os.stat("/dev/null").st_rdev) == (before.st_ino, before.st_rdev)
    with pytest.raises(OSError, match="No space left"):
        SAVERS[how](tc.ones(3), "/dev/full")


def test_pipes_are_written(how: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    SAVERS[how](tc.tensor([3.0]), tmp_path / "pipe")
    reader.join()
    (tmp_path / "x").write_bytes(got[0])
    assert LOADERS[how](tmp_path / "x") == [3.0] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.sampled(2)
def test_standard_output_is_written(how: str, tmp_path: Path) -> None:
    program = (
        "import sys, tracecomp as tc\nfrom tests.base.test_atomic import SAVERS\n"
        "SAVERS[sys.argv[1]](tc.tensor([4.0]), '/dev/stdout')\n"
    )
    with open(tmp_path / "x", "wb") as file:
        subprocess.run([sys.executable, "-c", program, how], stdout=file, timeout=100, check=True)
    assert LOADERS[how](tmp_path / "x") == [4.0]


def test_paths_that_cannot_be_written_are_errors(how: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Parent directory .*missing does not exist"):
        SAVERS[how](tc.ones(1), tmp_path / "missing" / "x")
    with pytest.raises(IsADirectoryError):
        SAVERS[how](tc.ones(1), tmp_path)
    SAVERS[how](tc.ones(1), tmp_path / ("n" * 255))
    assert [len(p.name) for p in tmp_path.iterdir()] == [255]


@contextmanager
def as_nobody() -> Iterator[Path]:
    """Runs the block as a user who may not do everything; gives a folder that is this user's."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, 65534, 65534)
        os.setegid(65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)
            os.setegid(0)


def test_a_file_that_may_not_be_written_is_not_replaced(how: str) -> None:
    with as_nobody() as folder:
        SAVERS[how](tc.tensor([1.0]), folder / "x")
        (folder / "x").chmod(0o444)
        with pytest.raises(PermissionError):
            SAVERS[how](tc.tensor([2.0]), folder / "x")
        assert LOADERS[how](folder / "x") == [1.0]


def test_a_file_in_a_folder_where_none_can_be_made_is_written(how: str) -> None:
    with as_nobody() as folder:
        SAVERS[how](tc.tensor([1.0]), folder / "x")
        folder.chmod(0o555)
        SAVERS[how](tc.tensor([2.0]), folder / "x")
        assert LOADERS[how](folder / "x") == [2.0]
        with pytest.raises(PermissionError):
            SAVERS[how](tc.tensor([2.0]), folder / "y")
        folder.chmod(0o755)


def test_equal_contents_give_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        save({"x": tc.arange(5.0)}, tmp_path / name / "x.pt")
    assert (tmp_path / "a" / "x.pt").read_bytes() == (tmp_path / "b" / "x.pt").read_bytes()
