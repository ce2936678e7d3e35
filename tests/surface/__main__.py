"""Writes docs/reports/surface.md, docs/operators.md and the stubs: ``python -m tests.surface``."""

from __future__ import annotations

from tests.surface.document import PATH, document
from tests.surface.operators import PATH as OPERATORS
from tests.surface.operators import operators
from tests.surface.stubs import stubs

if __name__ == "__main__":
    for path, text in {PATH: document(), OPERATORS: operators(), **stubs()}.items():
        path.write_text(text)
        print(f"wrote {path}")
