"""docs/surface.md says what the code has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_table_is_current() -> None:
    spec = importlib.util.spec_from_file_location("surface", ROOT / "tools" / "surface.py")
    assert spec is not None and spec.loader is not None
    surface = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(surface)
    assert (ROOT / "docs" / "surface.md").read_text() == surface.text(), "run python tools/surface.py"
