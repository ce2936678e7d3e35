"""Writes docs/surface.md: ``python -m tests.surface``."""

from __future__ import annotations

from tests.surface.document import PATH, document

if __name__ == "__main__":
    PATH.write_text(document())
    print(f"wrote {PATH}")
