"""Shared memory of processes: a publication is visible before its number, and is read after it."""

from __future__ import annotations

import os

import pytest

from tracecomp.communication import shared_memory
from tracecomp.communication.shared_memory import _made, _Segment

pytestmark = pytest.mark.skipif(not shared_memory.available(), reason="needs Linux")


def test_barriers_are_between_a_publication_and_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors other than x86-64 may otherwise show the number first, and read the data before it."""
    file = _made(1 << 16)
    assert file is not None
    segment = _Segment(file, 1 << 16)
    os.close(file)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(shared_memory, "barrier", lambda: seen.append((int(segment._words[0]), segment.digest(7))))
    segment.tell(7, 1234)
    assert seen == [(0, 1234)]
    assert segment.count() == 7
    assert seen == [(0, 1234), (7, 1234)]
