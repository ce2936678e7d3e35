"""Collectives inside compiled functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.gangs import gang, succeed


@pytest.mark.slow
def test_a_data_parallel_step_is_one_graph_with_its_communications() -> None:
    succeed(gang(2, str(Path(__file__).with_name("compiled.py"))))
