"""Collectives inside compiled functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.gangs import gang, succeed
from tests.fuzz.compiled_collectives import differences


@pytest.mark.slow
def test_a_data_parallel_step_is_one_graph_with_its_communications() -> None:
    succeed(gang(2, str(Path(__file__).with_name("compiled.py"))))


def test_a_random_program_of_collectives_gives_what_a_model_of_all_ranks_gives() -> None:
    """Seed 101 gathers one tensor twice; ranks record at different times and leave different results aside."""
    pytest.importorskip("torch")
    assert differences(3, 101, 1, 14) == []
