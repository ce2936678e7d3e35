"""Scripts in users' style: compiled as without. ``python -m tests.programs`` runs them natively."""

from __future__ import annotations

import pytest

from tests.programs.__main__ import PATH
from tests.programs.registry import Script
from tests.programs.running import report
from tests.programs.table import SCRIPTS


@pytest.mark.sampled(44)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_compiled_script_gives_what_it_gives_without(script: Script) -> None:
    found = report(script, backend="interpret")
    assert found.difference is None
    assert found.recordings + len(found.breaks) > 0  # something was compiled


def test_a_hundred_scripts_are_listed() -> None:
    listed = PATH.read_text()
    assert len(SCRIPTS) >= 100
    assert [n for n in SCRIPTS if f"| {n.replace('_', ' ')} |" not in listed] == []
