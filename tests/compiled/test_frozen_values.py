"""``verify`` reports every stale value of a recording, with the line of the program that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiled.frozen_values import PLANTS, Plant, found


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.title.replace(" ", "-"))
def test_a_frozen_value_is_found(plant: Plant, tmp_path: Path) -> None:
    wrong = found(plant, tmp_path)
    assert wrong is not None
    assert wrong.source is not None
    assert wrong.source.file.endswith("frozen_program.py") or wrong.source.file == "<string>"  # of the change


def test_there_are_fifty() -> None:
    assert len({p.title for p in PLANTS}) == len(PLANTS) >= 50
