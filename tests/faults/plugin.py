"""A plugin that plants one fault in every process of a test run: ``pytest -p tests.faults.plugin --plant fault:17``.

``fault:N`` is the N-th of ``tests/faults/planted*.py``, ``mutant:N`` the N-th of ``tests/fuzz/mutations.py`` in a fixed
shuffled order. Processes that tests start themselves run without the fault.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.faults.planted import FAULTS
from tests.faults.planted_operators import MORE
from tests.faults.planted_stages import STAGES
from tests.fuzz.killers import PACKAGE, ROOMS
from tests.fuzz.mutations import Mutation, mutations, plant

FAULTS_OF_THE_PACKAGE = tuple(fault for fault in (*FAULTS, *MORE, *STAGES) if fault.plant is not None)


@cache
def mutants() -> list[Mutation]:
    """Every possible mutation of passes, scheduling and code generation, shuffled."""
    files = sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py"))
    found = [mutation for file in files for mutation in mutations(file)]
    random.Random(0).shuffle(found)
    return found


def describe(name: str) -> str:
    """Return a description of the faults of ``--plant name``."""
    kind, _, number = name.partition(":")
    if kind == "fault":
        fault = FAULTS_OF_THE_PACKAGE[int(number)]
        return f"{fault.room}: {fault.what}"
    return str(mutants()[int(number)])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plant", metavar="KIND:N", help="plant a fault: fault:N or mutant:N")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--plant")
    if not name:
        return
    kind, _, number = name.partition(":")
    if kind == "fault":
        planted = FAULTS_OF_THE_PACKAGE[int(number)].plant
        assert planted is not None
        planted.plant()
    elif not plant(mutants()[int(number)]):
        raise pytest.UsageError(f"{describe(name)} could not be planted")
