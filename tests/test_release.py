"""Releases can be built again to the same bytes, and hold nothing but the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def built(folder: Path, time: int) -> Path:
    """The wheel of a copy of the sources, whose files have that time."""
    sources = folder / "sources"
    for name in ("tracecomp", "tracecomp_runtime"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for path in (sources, *sources.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # as under the usual umask: a wheel keeps modes
        os.utime(path, (time, time))
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=sources, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.splitlines()[-1]


def test_a_wheel_built_twice_has_the_same_bytes(tmp_path: Path) -> None:
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("pyproject.toml asks for setuptools 77")
    first, other = (built(tmp_path / name, time) for name, time in (("a", 10**9), ("elsewhere", 1_600_000_000)))
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(other) as two:
        names = one.namelist()
        assert names == two.namelist()
        assert [n for n in names if one.read(n) != two.read(n)] == []
        assert {n.split("/")[0].split("-")[0] for n in names} == {"tracecomp", "tracecomp_runtime"}
        assert not [n for n in names if n.endswith((".pyc", ".so")) or "/tests/" in n]
        attributes = [(a.external_attr, a.date_time) for a in one.infolist()]
        assert attributes == [(b.external_attr, b.date_time) for b in two.infolist()]
    assert first.read_bytes() == other.read_bytes()
