"""The same programs under torch with gloo and here give the same, and raise the same; over MPI as over TCP."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.distributed.gangs import gang, succeed
from tests.distributed.programs import PROGRAMS
from tests.distributed.test_launcher import NEEDS_MPI, environment

SIZE = 3


@cache
def results(module: str, shared_memory: str = "1") -> list[dict[str, Any]]:
    """Return every rank's results, program by program."""
    script = str(Path(__file__).with_name("programs.py"))
    with TemporaryDirectory() as folder:
        succeed(gang(SIZE, script, module, folder, more={"TRACECOMP_SHARED_MEMORY": shared_memory}))
        return [pickle.loads((Path(folder) / f"{module}-{rank}.pickle").read_bytes()) for rank in range(SIZE)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_under_gloo(name: str) -> None:
    pytest.importorskip("torch")
    for rank in range(SIZE):
        assert results("tracecomp")[rank][name] == results("torch")[rank][name], f"rank {rank}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_by_messages_what_it_gives_by_shared_memory(name: str) -> None:
    assert [r[name] for r in results("tracecomp", "0")] == [r[name] for r in results("tracecomp")]


@cache
def over_mpi() -> list[dict[str, Any]]:
    """Return every rank's results under ``mpiexec``."""
    script = str(Path(__file__).with_name("programs.py"))
    launcher = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", "mpiexec", "-n", str(SIZE)]
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [*launcher, script, "tracecomp", folder],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment() | {"TRACECOMP_SHARED_MEMORY": "0"},
        )
        assert done.returncode == 0, done.stderr
        return [pickle.loads((Path(folder) / f"tracecomp-{rank}.pickle").read_bytes()) for rank in range(SIZE)]


@pytest.mark.slow
@NEEDS_MPI
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_over_mpi_what_it_gives_over_tcp(name: str) -> None:
    expected = [found[name] for found in results("tracecomp")]
    if name == "the_store_of_a_tcp_address":
        expected = ["raises ValueError"] * SIZE  # MPI needs none
    assert [found[name] for found in over_mpi()] == expected
