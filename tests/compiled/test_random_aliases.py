"""Random programs on tensors that share memory: compiled as eager. ``python -m tests.fuzz --minutes 60`` runs more."""

from __future__ import annotations

import pytest

from tests.fuzz.checking import check
from tests.fuzz.programs import Input, Program, generate

COUNT = 60
F32 = ((4, 6), "float32", False)
FOUND = {
    "a data alias of an argument's memory counts by itself": Program(
        (F32,), (Input(0), Input(0, handle="data", captured=True)), (("copy_", 1, 0),), (2,), 3
    ),
    "one element of an expanded argument": Program(
        (((), "float32", False),), (Input(0, (("expand", 4, 10),)),), (("set_last", 0, 0),), (11,), 7
    ),
    "history that a view of an argument's base got": Program(
        (((4, 6), "float32", True),), (Input(0, (("split", 5, 9),)),), (("index_", 0, 0), ("sum", 0, 0)), (2,), 3
    ),
    "shared memory that gets a history": Program(
        (F32, F32, ((4, 6), "float32", True)), (Input(0), Input(0, handle="numpy"), Input(2)), (("index_", 0, 3),), (5,)
    ),
    "one storage in one call and two in the next": Program(
        (F32, F32, F32), (Input(1, (("select", 9, 1),)), Input(1, (("select", 8, 0), ("select", 2, 2)))),
        (("zero_", 7, 0), ("add_", 0, 0)), (10,), 7, apart=True,
    ),
    "history that a detached tensor from outside got": Program(
        (((4, 6), "float32", True), F32), (Input(0), Input(0, handle="detached", captured=True)),
        (("add_", 1, 0),), (10,), 1, 2,
    ),
    "a view made without gradients of what requires grad": Program(
        (((4, 6), "float32", True),), (Input(0),), (("quiet", 0, 0), ("expand", 2, 0), ("detach", 0, 6)), (2, 1, 0), 1
    ),
    "a view made without gradients of what gets a history": Program(
        (((4, 6), "float32", True), F32), (Input(0), Input(1)), (("quiet", 1, 0), ("add_", 1, 0)), (0, 3), 1, 1
    ),
    "one of several views whose base was written": Program(
        (((4, 6), "float32", True),), (Input(0),), (("unbind", 0, 0), ("copy_", 3, 0)), (1,), 1
    ),
    "several views of memory that gets a history": Program(
        (((1, 1), "float32", True), F32), (Input(0), Input(1)), (("chunk", 3, 0), ("set_row", 1, 0)), (0, 3), 1, 1
    ),
    "a view made without gradients whose base was written": Program(
        (((4, 6), "float32", True),), (Input(0),), (("quiet", 0, 0), ("transpose", 1, 0), ("mul_", 0, 0)), (1, 0), 3
    ),
    "a write to a view that shows what another view got": Program(
        (((4, 6), "float32", True), F32), (Input(0), Input(1)),
        (("transpose", 9, 0), ("alias", 7, 0), ("set_row", 2, 0), ("add_", 3, 0)), (9,), 3, 1,
    ),
    "an array without dimensions": Program((((), "float32", False),), (Input(0, handle="numpy"),), (), (1,), 7),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong_once(name: str) -> None:
    assert check(FOUND[name]) is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ("torch", "interpret", "native"))
def test_random_programs_run_as_in_eager_mode(way: str) -> None:
    found = {seed: said for seed in range(COUNT) if (said := check(generate(seed), (way,))) is not None}
    assert not found
