"""The same programs under torch with gloo and here give the same, and raise the same."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.distributed.gangs import gang, succeed
from tests.distributed.programs import PROGRAMS

SIZE = 3


@cache
def results(module: str) -> list[dict[str, Any]]:
    """What every rank found, program by program."""
    script = str(Path(__file__).with_name("programs.py"))
    with TemporaryDirectory() as folder:
        succeed(gang(SIZE, script, module, folder))
        return [pickle.loads((Path(folder) / f"{module}-{rank}.pickle").read_bytes()) for rank in range(SIZE)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_under_gloo(name: str) -> None:
    pytest.importorskip("torch")
    for rank in range(SIZE):
        assert results("tracecomp")[rank][name] == results("torch")[rank][name], f"rank {rank}"
