"""Calls of compiled programs: threads, concurrency, fork, profile, and the object cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.codegen.programs import elementwise
from tracecomp.base import config
from tracecomp.codegen.text import native
from tracecomp.ir.loops import Const
from tracecomp.ir.program import Program
from tracecomp.ir.scalars import call
from tracecomp.ir.types import float32
from tracecomp.runtime import object_cache, threads
from tracecomp.runtime.executable import Executable

SIZE = 100_000


def adding(value: float, size: int = SIZE) -> Program:
    return elementwise(lambda x: call("add", x, Const(value, float32)), [float32], float32, size, chunk=64)


def result(executable: Executable, x: Any, count: int | None = None) -> Any:
    out = np.empty_like(x)
    executable.run([x], [out], threads=count)
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache_dir=str(tmp_path)):
        yield tmp_path


def test_any_number_of_threads_and_changes_of_it() -> None:
    executable, x = Executable(adding(1.5)), np.arange(SIZE, dtype=np.float32)
    for count in (1, 2, 4, 3, 2, 5, 1, 2):
        assert np.array_equal(result(executable, x, count), x + np.float32(1.5))


def test_set_num_threads() -> None:
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    assert threads.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="positive"):
        threads.set_num_threads(0)
    threads.set_num_threads(before)


def test_calls_from_several_python_threads() -> None:
    executable = Executable(adding(2.0))
    failures: list[int] = []

    def work(k: int) -> None:
        x = np.full(SIZE, k, np.float32)
        for _ in range(30):
            if not np.array_equal(result(executable, x, 2), x + 2):
                failures.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def test_results_after_long_sleep_of_the_workers() -> None:
    """Workers that gave up spinning are woken."""
    executable, x = Executable(adding(3.0)), np.zeros(SIZE, np.float32)
    for _ in range(3):
        assert result(executable, x, 2)[0] == 3.0
        threading.Event().wait(0.05)


def test_what_may_be_passed(tmp_path: Path) -> None:
    """Subclasses of ndarray are arrays; scalars, lists and a wrong number of arrays are refused."""
    executable = Executable(adding(1.0, 4))
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=4)
    assert result(executable, mapped).tolist() == [1.0] * 4
    out = np.empty(4, np.float32)
    wrongs: tuple[Any, ...] = ([[0.0] * 4], [np.float32(0)], [], [out, out])
    for wrong in wrongs:
        with pytest.raises(TypeError, match="2 arrays are expected"):
            executable.run(wrong, [out])


def test_profile_names_steps() -> None:
    x = np.ones(SIZE, np.float32)
    out = np.empty_like(x)
    [(label, seconds)] = Executable(adding(1.0)).run_profiled([x], [out], threads=2)
    assert label == "step" and 0 < seconds < 1 and out[0] == 2.0


def test_assembly_is_readable() -> None:
    assert "tc_entry" in Executable(adding(1.0)).assembly


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_its_own_pool() -> None:
    program = (
        "import os, sys, numpy as np\n"
        "from tests.runtime.test_executable import adding, result\n"
        "from tracecomp.runtime.executable import Executable\n"
        "executable, x = Executable(adding(1.0)), np.ones(100000, np.float32)\n"
        "result(executable, x, 2)\n"
        "child = os.fork()\n"
        "good = bool((result(executable, x, 2) == 2).all())\n"
        "if child == 0:\n"
        "    os._exit(0 if good else 3)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "sys.exit(status or (0 if good else 4))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_objects_are_stored_and_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Executable(adding(41.0))
    assert len(list(folder.glob("*.o"))) == 1

    def refuse(*args: Any) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(native, "compile_object", refuse)
    assert result(Executable(adding(41.0)), np.zeros(SIZE, np.float32))[0] == 41.0


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign", "swap"])
def test_damaged_objects_are_compiled_again(folder: Path, damage: str) -> None:
    Executable(adding(42.0))
    [path] = folder.glob("*.o")
    good = path.read_bytes()
    if damage == "swap":
        Executable(adding(43.0))
        [other] = set(folder.glob("*.o")) - {path}
        path.write_bytes(other.read_bytes())
    else:
        changed = bytearray(good)
        changed[len(good) // 2] ^= 255
        bad = {"truncate": good[:-9], "flip": bytes(changed), "empty": b"", "foreign": b"not an object" * 99}
        path.write_bytes(bad[damage])
    assert result(Executable(adding(42.0)), np.zeros(SIZE, np.float32))[0] == 42.0
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    chosen = config.override(cache_dir=str(blocked / "sub"))
    with chosen, pytest.warns(RuntimeWarning, match="cannot be cached.*file is not a folder") as seen:
        assert result(Executable(adding(44.0)), np.zeros(SIZE, np.float32))[0] == 44.0
        assert result(Executable(adding(45.0)), np.zeros(SIZE, np.float32))[0] == 45.0
    assert len(seen) == 1


@pytest.mark.parametrize("limit", ["LIMIT_BYTES", "LIMIT_FILES"])
def test_the_least_recently_used_objects_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    Executable(adding(45.0))
    [old] = folder.glob("*.o")
    os.utime(old, (1, 1))
    if limit == "LIMIT_FILES":
        monkeypatch.setattr(object_cache, limit, 1)
    else:
        monkeypatch.setattr(object_cache, limit, old.stat().st_size + 100)
    monkeypatch.setattr(object_cache, "WRITES_PER_TRIM", 1)
    Executable(adding(46.0))
    assert not old.exists() and len(list(folder.glob("*.o"))) == 1


def test_processes_share_the_cache(tmp_path: Path) -> None:
    """Two processes that compile the same things at once both get right results and leave whole objects."""
    program = (
        "import numpy as np\n"
        "from tests.runtime.test_executable import adding, result\n"
        "from tracecomp.runtime.executable import Executable\n"
        "for k in range(4):\n"
        "    assert result(Executable(adding(float(k))), np.zeros(100000, np.float32))[0] == k\n"
    )
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [p.wait(timeout=100) for p in running] == [0, 0]
    names = sorted(p.name for p in tmp_path.iterdir())
    assert len(names) >= 4 and all(n.endswith(".o") for n in names)
