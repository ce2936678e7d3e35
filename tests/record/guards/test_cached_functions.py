"""Functions behind ``functools.lru_cache``: guards look up no entry that the call itself would not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch


def sizes_computed(run: Callable[[Any], Any], maxsize: int | None, clear_before: int | None) -> list[int]:
    """The sizes for which a cached mask was computed, in order."""
    computed: list[int] = []

    @functools.lru_cache(maxsize=maxsize)
    def mask(size: int) -> Any:
        computed.append(size)
        return torch.ones(size, size).tril()

    f = run(lambda x: x @ mask(x.shape[-1]))
    for call, size in enumerate((3, 4, 3, 5, 3, 4)):
        if call == clear_before:
            mask.cache_clear()
        x = torch.arange(2.0 * size).reshape(2, size)
        assert torch.equal(f(x), x @ torch.ones(size, size).tril())
    return computed


@pytest.mark.filterwarnings("ignore:graph break")
@pytest.mark.parametrize("clear_before", [None, 3, 4])
@pytest.mark.parametrize("maxsize", [2, 3, None])
def test_entries_are_computed_and_dropped_as_without_guards(maxsize: int | None, clear_before: int | None) -> None:
    eager = sizes_computed(lambda f: f, maxsize, clear_before)
    assert sizes_computed(torch.compile, maxsize, clear_before) == eager


def test_a_lookup_after_a_changed_number_is_not_repeated() -> None:
    computed: list[str] = []
    state = {"wide": True}

    @functools.cache
    def scale(name: str) -> float:
        computed.append(name)
        return {"first": 2.0, "wide": 3.0, "narrow": 5.0}[name]

    @torch.compile
    def f(x: Any) -> Any:
        y = x * scale("first")
        return y * (scale("wide") if state["wide"] else scale("narrow"))

    x = torch.ones(2)
    assert f(x).tolist() == f(x).tolist() == [6.0, 6.0]
    scale.cache_clear()
    state["wide"] = False
    assert f(x).tolist() == [10.0, 10.0]
    assert computed == ["first", "wide", "first", "narrow"]
