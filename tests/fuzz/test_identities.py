"""Values stored under an identity are kept only while the object lives, in all of the package.

A dictionary of values by ``id(expr)`` outlived an expression: the next one, with its identity, got its address, in one
process of many, and stored to it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.codegen import texts
from tests.fuzz import equal_graphs, training
from tests.fuzz.identities import HARMLESS, Watch, watched
from tracecomp.codegen.kernels.elements import Elements
from tracecomp.codegen.kernels.program import emit_program
from tracecomp.codegen.text.native import host_target
from tracecomp.ir.index import Var
from tracecomp.ir.loops import Expr
from tracecomp.ir.types import TensorType, float64
from tracecomp.passes.building import build


class Thing:
    """May be referred to weakly."""


class Slotted:
    """May not."""

    __slots__ = ("part",)

    def __init__(self, part: object = None) -> None:
        self.part = part


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [Thing, Slotted, lambda: Slotted(Slotted())])
def test_an_identity_that_outlives_its_object_is_noticed(make: Any) -> None:
    watch, known = Watch(), {}
    known[watch(make())] = "a value"
    watch(known)
    watch.settle()
    assert sum(watch.stale.values()) == 1 and "test_identities" in next(iter(watch.stale)), watch.stale


def test_a_collection_of_another_thread_hides_nothing() -> None:
    """``gc.collect`` does nothing while another thread collects; here that thread pauses in a finalizer."""
    collecting, proceed = threading.Event(), threading.Event()

    class Pausing:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            collecting.set()
            proceed.wait()

    def collect() -> None:
        Pausing()
        gc.collect()

    watch, known = Watch(), {}
    known[watch(Thing())] = "a value"
    with ThreadPoolExecutor(2) as threads:
        collection = threads.submit(collect)
        collecting.wait()
        watch(known)
        watch(known)
        open_still = not watch.stale
        settled = threads.submit(watch.settle)
        proceed.set()
        collection.result()
        settled.result()
    assert open_still and sum(watch.stale.values()) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [Thing, Slotted])
def test_identities_of_what_is_held_or_forgotten_are_no_matter(make: Any) -> None:
    watch, known = Watch(), {}
    for n in range(200):
        thing = make()
        known[watch(thing)] = thing
        if n % 3:
            del known[watch(thing)]
        assert watch(thing) == id(thing)
    del thing
    loop = SimpleNamespace(seen={watch(make())})  # unreachable garbage
    loop.itself = loop
    del loop
    watch(known)
    watch.settle()
    assert not watch.stale


def builds() -> None:
    """Compile many kinds of programs, and run some."""
    texts.texts()
    for seed in range(3):
        assert equal_graphs.difference(seed, 7) is None and training.difference(seed) is None


def test_nothing_is_kept_under_the_identity_of_what_is_gone() -> None:
    with watched() as watch:
        builds()
    assert not watch.stale and watch.asked > 10_000


@pytest.mark.slow
def test_the_fault_that_was_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is the entry without the expression next to it."""
    over = Elements.over

    class Unheld(dict[int, Any]):
        def __setitem__(self, key: int, value: tuple[Expr, frozenset[Var]]) -> None:
            super().__setitem__(key, (None, value[1]))

    def forgetful(self: Elements, expr: Expr) -> frozenset[Var]:
        if type(self._over) is dict:
            self._over = Unheld()
        return over(self, expr)

    monkeypatch.setattr(Elements, "over", forgetful)
    program = build(texts.turned(TensorType(float64, (40, 20000)), (1, 0))).program
    with watched() as watch:
        emit_program(program, host_target())
    assert any("Elements.over" in found for found in watch.stale)


@pytest.mark.slow
def test_texts_do_not_depend_on_the_process() -> None:
    """Orders of sets and addresses of objects are others in every process; so are those of a second time in one."""
    here = texts.digests(texts.texts())
    assert texts.digests(texts.texts()) == here
    command, root = [sys.executable, "-m", "tests.codegen.texts"], Path(__file__).parents[2]
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(root)}
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(found) == here


def test_every_harmless_place_exists() -> None:
    for place in HARMLESS:
        module, _, kind = place.rpartition(".")
        assert callable(getattr(importlib.import_module(module), kind))
