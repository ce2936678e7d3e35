"""Scripts for torch.distributed write here what they write under torch with gloo, and end as they do there."""

from __future__ import annotations

from functools import cache

import pytest

from tests.distributed import scripts

NAMES = [*scripts.scripts()][:15]
"""Those that take no time; ``python -m tests.distributed.scripts`` runs all."""


@cache
def told(module: str) -> list[scripts.Told]:
    """Return the outputs of two processes."""
    return scripts.run(module, 2, len(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_writes_what_it_writes_under_gloo(name: str) -> None:
    pytest.importorskip("torch")
    for rank, expected in enumerate(told("torch")):
        assert told("tracecomp")[rank][name] == expected[name], f"rank {rank}"
