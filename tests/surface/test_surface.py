"""docs/reports/surface.md describes the code; ``python -m tests.surface`` rewrites it."""

from __future__ import annotations

import pytest

import tracecomp
from tests.surface.document import PATH, document
from tests.surface.operators import PATH as OPERATORS
from tests.surface.operators import operators
from tests.surface.probe import probe
from tests.surface.stubs import stubs


@pytest.mark.slow
def test_the_document_is_up_to_date() -> None:
    assert PATH.read_text() == document(), "run python -m tests.surface"
    assert OPERATORS.read_text() == operators(), "run python -m tests.surface"


def test_the_stubs_are_up_to_date() -> None:
    stale = [str(path) for path, text in stubs().items() if path.read_text() != text]
    assert not stale, f"run python -m tests.surface: {stale}"


def test_the_probe_tells_kinds_apart() -> None:
    assert probe(tracecomp.exp).made == "primitive" and probe(tracecomp.exp).differentiable == "yes"
    assert probe(tracecomp.softmax).made == "composed"
    assert probe(tracecomp.argmax).differentiable == "no"
    assert probe(tracecomp.nonzero).compiled == "one graph per value seen"
    assert probe(tracecomp.linalg.eigvalsh).compiled == "as a call of LAPACK"
    assert probe(lambda: None).made == ""
