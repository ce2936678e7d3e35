"""Writes docs/surface.md and the stubs: ``python -m tests.surface``."""

from __future__ import annotations

from tests.surface.document import PATH, document
from tests.surface.stubs import stubs

if __name__ == "__main__":
    for path, text in {PATH: document(), **stubs()}.items():
        path.write_text(text)
        print(f"wrote {path}")
