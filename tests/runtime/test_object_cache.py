"""The cache of compiled code never runs a file that another user can have written, or a damaged or stale one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.runtime.test_executable import SIZE, adding, result
from tracecomp import trace
from tracecomp.base import config
from tracecomp.codegen.text import native
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.runtime import compiler, object_cache, private_files, program_cache
from tracecomp.runtime.executable import Executable

GiveAway = Callable[[Path], None]
KEY = "ab" * 32
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of the cache, with one object."""
    object_cache._shown.clear()
    with config.override(cache_dir=str(tmp_path / "above" / "cache")):
        object_cache.write(KEY, b"good")
        assert object_cache.read(KEY) == b"good"
        yield tmp_path / "above" / "cache"
    object_cache._shown.clear()


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> GiveAway:
    """Change the owner of a path; only root may do that, so other users see a changed ``stat`` result."""

    def really(path: Path) -> None:
        os.lchown(path, NOBODY, NOBODY)

    def apparently(path: Path) -> None:
        found = os.lstat(path)
        lstat, fstat = os.lstat, os.fstat

        def pretend(info: os.stat_result) -> os.stat_result:
            same = (info.st_dev, info.st_ino) == (found.st_dev, found.st_ino)
            return os.stat_result([info.st_uid + 1 if same and n == 4 else v for n, v in enumerate(info)])

        monkeypatch.setattr(os, "lstat", lambda path: pretend(lstat(path)))
        monkeypatch.setattr(os, "fstat", lambda descriptor: pretend(fstat(descriptor)))

    return really if os.geteuid() == 0 else apparently


def moved(path: Path) -> Path:
    """Move a path and replace it by a link."""
    real = path.rename(path.parent.parent / "real")
    path.symlink_to(real)
    return real


def replaced_by(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink()
    make(path)


def as_a_ring(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder)


def as_a_foreign_link(folder: Path, give_away: GiveAway) -> None:
    moved(folder)
    give_away(folder)


PLANTED: dict[str, Callable[[Path, Path, GiveAway], Any]] = {
    "a file of another user": lambda folder, file, give_away: give_away(file),
    "a file that others may write": lambda folder, file, give_away: os.chmod(file, 0o602),
    "a file that the group may write": lambda folder, file, give_away: os.chmod(file, 0o620),
    "a file with a second name": lambda folder, file, give_away: os.link(file, folder.parent / "second"),
    "a link to a file": lambda folder, file, give_away: moved(file),
    "a pipe": lambda folder, file, give_away: replaced_by(file, os.mkfifo),
    "a folder in the file's place": lambda folder, file, give_away: replaced_by(file, os.mkdir),
    "a folder of another user": lambda folder, file, give_away: give_away(folder),
    "a folder that others may write": lambda folder, file, give_away: os.chmod(folder, 0o777),
    "a folder that all write, with its sticky bit": lambda folder, file, give_away: os.chmod(folder, 0o1777),
    "a folder that the group may write": lambda folder, file, give_away: os.chmod(folder, 0o770),
    "a folder above that others may write": lambda folder, file, give_away: os.chmod(folder.parent, 0o777),
    "a folder above of another user": lambda folder, file, give_away: give_away(folder.parent),
    "somebody's link to the folder": lambda folder, file, give_away: as_a_foreign_link(folder, give_away),
    "a link to a folder that others may write": lambda folder, file, give_away: os.chmod(moved(folder), 0o777),
    "a ring of links": lambda folder, file, give_away: as_a_ring(folder),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_what_others_could_have_written_is_not_read(kind: str, folder: Path, give_away: GiveAway) -> None:
    PLANTED[kind](folder, folder / f"{KEY}.o", give_away)
    with pytest.warns(RuntimeWarning, match="cached code is ignored|cannot be cached") as seen:
        assert object_cache.read(KEY) is None
        assert object_cache.read(KEY) is None
    assert len(seen) == 1


def test_a_program_runs_beside_an_unsafe_folder(folder: Path) -> None:
    os.chmod(folder, 0o777)
    before = sorted(folder.iterdir())
    with pytest.warns(RuntimeWarning, match=r"others may write .*TRACECOMP_CACHE_DIR"):
        assert result(Executable(adding(7.0)), np.zeros(SIZE, np.float32))[0] == 7.0
    assert sorted(folder.iterdir()) == before


def test_a_link_of_ones_own_to_a_safe_folder_is_followed(folder: Path) -> None:
    folder.rename(folder.parent / "real")
    folder.symlink_to("../above/real")
    assert object_cache.read(KEY) == b"good"


@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_folders_and_files_are_private_under_every_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        made = private_files.make_folder(tmp_path / "a" / "b")
        with config.override(cache_dir=str(made)):
            object_cache.write(KEY, b"x")
    finally:
        os.umask(before)
    modes = [p.stat().st_mode & 0o777 for p in (tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o700, 0o700] and (made / f"{KEY}.o").stat().st_mode & 0o077 == 0


def test_a_user_without_a_home_gets_a_warning_and_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    object_cache._shown.clear()
    with (
        config.override(cache_dir=""),
        pytest.warns(RuntimeWarning, match="home folder of this user is unknown") as seen,
    ):
        assert result(Executable(adding(8.0)), np.zeros(SIZE, np.float32))[0] == 8.0
        assert result(Executable(adding(9.0)), np.zeros(SIZE, np.float32))[0] == 9.0
    assert len(seen) == 1
    object_cache._shown.clear()


def test_a_full_disk_is_one_warning_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    names = sorted(folder.iterdir())
    made = tempfile.mkstemp

    def on_a_full_disk(**where: Any) -> tuple[int, str]:
        handle, name = made(**where)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, handle)
        os.close(full)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", on_a_full_disk)
    with pytest.warns(RuntimeWarning, match="No space left"):
        object_cache.write("cd" * 32, b"x" * 100_000)
    assert sorted(folder.iterdir()) == names


def test_absurd_files_are_a_miss(folder: Path) -> None:
    path = folder / f"{KEY}.o"
    with open(path, "r+b") as file:
        file.truncate(1 << 40)  # a hole: no disk is used
    assert object_cache.read(KEY) is None
    for size in (0, 5, len(object_cache._MAGIC), len(object_cache._MAGIC) + 7):
        path.write_bytes(object_cache._MAGIC[:size].ljust(size, b"\0"))
        assert object_cache.read(KEY) is None


@contextmanager
def started(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has printed a line, and the line; it is killed after the block."""
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_files_of_dead_writers_are_removed_and_those_of_living_ones_stay(folder: Path) -> None:
    program = (
        "import signal, sys\nfrom tracecomp.runtime import object_cache as c\n"
        "handle, name = c.tempfile.mkstemp(dir=sys.argv[1], prefix=c._UNFINISHED)\nc._lock(handle)\n"
        "print(name, flush=True)\nsignal.pause()\n"
    )
    with started(program, folder) as (_, dead):
        pass
    with started(program, folder) as (_, alive):
        object_cache._remove_unfinished.cache_clear()
        object_cache.write("cd" * 32, b"x")
        assert not Path(dead).exists() and Path(alive).exists()


def damaged(data: bytes, dice: random.Random) -> bytes:
    """``data`` with a few bits, bytes or pieces changed."""
    changed = bytearray(data)
    kind = dice.randrange(4)
    at = dice.randrange(len(changed))
    if kind == 0:
        changed[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        changed[at:at] = dice.randbytes(dice.randrange(1, 9))
    else:
        changed[at : at + 8] = dice.randbytes(8)
    return bytes(changed)


def damage_entries(folder: Path, count: int, seed: int) -> int:
    """Read so many damaged objects; how many differed from the good one. AssertionError when one was returned."""
    object_cache.write(KEY, random.Random(0).randbytes(500))
    path = folder / f"{KEY}.o"
    good, dice, different = path.read_bytes(), random.Random(seed), 0
    for _ in range(count):
        bad = damaged(good, dice)
        path.write_bytes(bad)
        different += bad != good
        assert bad == good or object_cache.read(KEY) is None
    return different


def test_damaged_entries_are_never_returned(folder: Path) -> None:
    assert damage_entries(folder, 500, 1) > 400


WRITER = (
    "import sys\nfrom tracecomp.base import config\nfrom tracecomp.runtime import object_cache as c\n"
    "with config.override(cache_dir=sys.argv[1]):\n"
    "    print(flush=True)\n"
    "    n = 0\n"
    "    while True:\n"
    "        n += 1\n"
    "        c.write(f'{n % 5:064x}', bytes([n % 5]) * 200_000)\n"
)


def kill_writers(folder: Path, kills: int, at_once: int, seed: int) -> None:
    """Kill so many processes while they write, so many of which run at once; every entry stays whole or is none."""
    dice = random.Random(seed)
    for _ in range(-(-kills // at_once)):
        with ExitStack() as stack:
            running = [stack.enter_context(started(WRITER, folder))[0] for _ in range(at_once)]
            for process in running:
                time.sleep(dice.uniform(0.0, 0.05))
                process.kill()
                process.wait()
                for n in range(5):
                    assert object_cache.read(f"{n:064x}") in (None, bytes([n]) * 200_000)
    object_cache._remove_unfinished.cache_clear()
    object_cache.write(KEY, b"good")
    assert not [p for p in folder.iterdir() if not p.name.endswith(".o")]


@pytest.mark.slow
def test_writers_that_are_killed_at_any_time_leave_whole_entries_or_none(folder: Path) -> None:
    kill_writers(folder, 4, 2, 2)


KILLS = """
import os, signal, sys
from tracecomp.base import config
from tracecomp.runtime import object_cache as c

KEY, OLD, NEW = "cd" * 32, b"old" * 50_000, b"new" * 50_000

class Kill:
    def __init__(self, number):
        self.left = number
    def __call__(self, frame, event, argument):
        self.left -= event == "c_return"  # files change in functions of C alone
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

def killed(number):
    child = os.fork()
    if not child:
        sys.setprofile(Kill(number))
        c.write(KEY, NEW)
        sys.setprofile(None)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

with config.override(cache_dir=sys.argv[1]):
    c.write(KEY, OLD)
    number, end = 0, False
    while not end:
        number += 1
        end = not killed(number)
        print({OLD: "old", NEW: "new"}.get(c.read(KEY), "damaged"))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_writer_killed_between_any_two_calls_leaves_the_old_entry_or_the_new_one(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLS, str(folder)], capture_output=True, text=True, check=True)
    entries = done.stdout.split()
    assert len(entries) > 20 and entries == sorted(entries, reverse=True) and {*entries} == {"old", "new"}
    object_cache._remove_unfinished.cache_clear()
    object_cache.write(KEY, b"good")
    assert not [p for p in folder.iterdir() if not p.name.endswith(".o")]


def key() -> str:
    """The key of a small program, with nothing remembered."""
    for remembered in (program_cache._sources, native.compiler_version, compiler._compiler_source, compiler._answers):
        remembered.cache_clear()
    return program_cache.key_of(trace(lambda x: x.exp(), tc.ones(3)), host())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("room", program_cache._ROOMS)
def test_an_edit_that_keeps_size_and_time_is_another_key(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "tracecomp"
    shutil.copytree(Path(program_cache.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(program_cache, "__file__", str(copy / "runtime" / "program_cache.py"))
    monkeypatch.setattr(program_cache, "_IMPORTED_NS", time.time_ns() + 10**12)
    before = key()
    assert key() == before
    file = sorted((copy / room).rglob("*.py"))[-1]
    info = file.stat()
    file.write_text(file.read_text().replace("a", "b", 1))
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns)
    assert key() != before


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "numpy": lambda m: m.setattr(np, "__version__", "9.9.9"),
    "Python": lambda m: m.setattr(sys, "version", "9.9.9"),
    "LLVM, llvmlite or its options": lambda m: m.setattr(compiler, "compiler_version", lambda: "9.9.9"),
    "the processor": lambda m: m.setattr("tests.runtime.test_object_cache.host", lambda: Machine(16, 16)),
    "its features": lambda m: m.setattr(compiler, "host_target", lambda: native.cross_target("x86_64", "znver4", "")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_code_changes_the_key(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    CHANGES[what](monkeypatch)
    assert key() != before
    monkeypatch.undo()
    assert key() == before


def test_settings_that_change_code_change_the_key() -> None:
    keys = {key()}
    for changes in ({"fusion": False}, {"fast_math": True}, {"stop_after": 2}, {"skip_passes": ("simplify",)}):
        with config.override(**changes):
            keys.add(key())
    assert len(keys) == 5


def test_sources_that_changed_since_the_process_began_are_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "_IMPORTED_NS", 0)
    assert key() != key()


def test_sources_that_cannot_be_found_are_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "__file__", "/nonexistent/tracecomp.zip/tracecomp/runtime/program_cache.py")
    assert key() != key()
