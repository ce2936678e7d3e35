"""The programs of installed libraries, eagerly and compiled, compared with the installed PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ecosystem.programs import PROGRAMS
from tests.ecosystem.runner import TOLERANCE, difference, installed, run

CASES = [(library, program.__name__) for library, programs in PROGRAMS.items() for program in programs]


@pytest.mark.parametrize(("library", "program"), CASES, ids=[name for _, name in CASES])
def test_a_program_of_a_library_computes_what_it_computes_on_pytorch(library: str, program: str) -> None:
    torch = find_spec("torch")
    if not installed(library) or torch is None or torch.origin is None:
        pytest.skip(f"needs {library} and torch")
    reference = run(library, program, "eager", str(Path(torch.origin).parents[1]))
    assert not reference.error
    for mode in ("eager", "compiled"):
        found = run(library, program, mode)
        assert not found.error, found.error
        assert difference(found, reference) <= TOLERANCE
