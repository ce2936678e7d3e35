"""A sample of the recorded graphs still becomes the same programs and bits.

``python -m tests.replay check`` replays them all.
"""

from __future__ import annotations

import pytest

from tests.replay import corpus, digests
from tests.replay.corpus import Recorded

GRAPHS = corpus.load()
SMALL_ONES = [g for g in GRAPHS if len(g.graph) < 4000]
SAMPLE = SMALL_ONES[:: len(SMALL_ONES) // 20]


@pytest.mark.parametrize("recorded", SAMPLE, ids=lambda r: r.name)
def test_a_recorded_graph_becomes_the_same_program(recorded: Recorded) -> None:
    found, reference = digests.of(recorded, bits=False), corpus.load_reference()[recorded.name]
    assert found == {kind: reference[kind] for kind in found}, "meant? python -m tests.replay check --update"


@pytest.mark.parametrize("recorded", SAMPLE[::5], ids=lambda r: r.name)
def test_a_recorded_graph_computes_the_same_bits(recorded: Recorded) -> None:
    assert digests.of(recorded, bits=True) == corpus.load_reference()[recorded.name]


def test_every_recorded_graph_has_a_reference() -> None:
    names = [g.name for g in GRAPHS]
    assert len(set(names)) == len(names) and set(corpus.load_reference()) == set(names)


SMALL = """graph "{name}" {{
  %{x}: f32[5] = argument "x"
  %0 = mul(%{x}, {factor}:f32) : f32[5]
  result "out0" = %0
}}
"""


def test_digests_see_what_is_computed_and_not_names() -> None:
    def digest(**how: str) -> dict[str, str]:
        return digests.of(Recorded("small", SMALL.format(**how)), bits=True)

    plain = digest(name="f", x="x", factor="3.0")
    assert digest(name="g", x="y", factor="3.0") == plain
    changed = digest(name="f", x="x", factor="4.0")
    assert all(changed[kind] != plain[kind] for kind in ("avx512", "avx2", "bits"))
