"""Identities that outlive what they name: ``python -m pytest -p tests.fuzz.identities TESTS``.

``id`` numbers an object while it lives; the next object may get the same number. Code that stores a value under
``id(x)`` must keep ``x`` alive for as long. Otherwise another object gets the stored value, by chance, in one process
of many. This check does not depend on chance. The package's modules see an ``id`` whose numbers are objects, so it
detects numbers that outlive their objects.
"""

from __future__ import annotations

import functools
import gc
import importlib
import pkgutil
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tracecomp

APART = ("record.frames", "record.guards.class_versions", "runtime.object_layout", "runtime.call", "runtime.entry")
"""Modules that read memory at an identity; they remember nothing under it."""

RECENT = 48
SWEEP = 400
"""Each new identity checks so many of the last objects; after so many identities, all of them are checked."""

PLACES = 8
"""The number of callers of one identity that a report lists."""
OFTEN = 20
"""Suspicions after which a place is no longer checked: collecting garbage takes time."""

HARMLESS = {
    "tracecomp.record.results.Results": "tensors of the call are let go of as the last step of its recording, when "
    "nobody asks for results any more; if they were held, they could not be told from what the program keeps",
    "tracecomp.record.new_objects.has_made": "an object with the identity of one that the call made is also made by it",
}
"""Classes and functions that keep identities longer than objects, and why nothing can go wrong there."""


class Identity(int):
    """A number whose lifetime shows that it is still referenced."""


class _Known:
    """An object whose identity was read, and where. It is kept alive (``x``), or has a weak ``reference``."""

    __slots__ = ("identity", "kind", "places", "reference", "x")

    def __init__(self, x: object, reference: Any, held: object) -> None:
        self.identity, self.kind, self.places = Identity(id(x)), type(x).__name__, set[str]()
        self.reference, self.x = reference, held

    def said(self) -> str:
        """Return a report: one of the places keeps the identity."""
        return f"{' or '.join(sorted(self.places))} keeps the identity of a {self.kind} that is gone"

    def is_kept(self) -> bool:
        """Return whether the identity is referenced, other than by this object and the call."""
        return sys.getrefcount(self.identity) > ALONE


_lonely = _Known(None, None, object())
ALONE = sys.getrefcount(_lonely.x)
"""The value of ``sys.getrefcount`` for an object that only one attribute references."""


def _collected() -> bool:
    """Collect garbage. Return False if a collection is in progress, here or in another thread: nothing happens then."""
    before = gc.get_stats()[2]["collections"]
    gc.collect()
    return gc.get_stats()[2]["collections"] > before


class Watch:
    """``id``, which notes who keeps identities longer than objects live."""

    def __init__(self) -> None:
        self.stale = Counter[str]()
        self.asked = 0
        self._looking = False
        self._referred: dict[int, _Known] = {}
        self._held: dict[int, _Known] = {}
        self._gone: list[_Known] = []
        self._suspects: list[_Known] = []
        self._innocent = Counter[str]()

    def __call__(self, x: object) -> int:
        # Arrays' and frames' references are counted, and words of their memory compared. Finalizers ask in between.
        if isinstance(x, np.ndarray | FrameType) or self._looking:
            return id(x)
        self.asked += 1
        self.look(all_of_them=self.asked % SWEEP == 0)
        known = self._known(x)
        if len(known.places) < PLACES:
            frame = sys._getframe(1)
            known.places.add(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")
        return known.identity

    def _known(self, x: object) -> _Known:
        key = id(x)
        if key in self._held:
            return self._held[key]
        known = self._referred.get(key)
        if known is not None and known.reference() is x:
            return known
        try:
            reference = weakref.ref(x, partial(self._end, key))
        except TypeError:  # not weakly referenceable: kept here, and dropped when no other reference exists
            self._held[key] = _Known(x, None, x)
            return self._held[key]
        if known is not None:
            self._gone.append(known)
        self._referred[key] = _Known(x, reference, None)
        return self._referred[key]

    def _end(self, key: int, reference: object) -> None:
        # Another object may have the number before the end of this one is reported.
        if self._referred[key].reference is reference:
            self._gone.append(self._referred.pop(key))

    def look(self, all_of_them: bool = True) -> None:
        """Note the identities that are kept although their objects are gone."""
        self._looking = True
        # The last ones first: later objects reference earlier ones.
        try:
            keys = list(islice(reversed(self._held), None if all_of_them else RECENT))
        except RuntimeError:  # another thread has added one since ``reversed``: the next look finds them
            keys = []
        for key in keys:
            if sys.getrefcount(self._held[key].x) == ALONE:
                self._held[key].x = None
                self._gone.append(self._held.pop(key))
        gone, self._gone = self._gone, []
        if self._suspects and _collected():
            suspects, self._suspects = self._suspects, []
            for known in suspects:
                (self.stale if known.is_kept() else self._innocent)[known.said()] += 1
        for known in gone:
            if known.is_kept() and not any(place.startswith(tuple(HARMLESS)) for place in known.places):
                said = known.said()
                if max(self._innocent[said], self.stale[said]) < OFTEN:
                    self._suspects.append(known)
        self._looking = False

    def settle(self) -> None:
        """Look until no suspicion is open. It must not run in a finalizer, where no collection ever succeeds.

        While another thread collects, and pauses in a finalizer or callback, no thread can.
        """
        self.look()
        while self._suspects:
            time.sleep(0.001)
            self.look()


# Recording watches what code outside of the package does; this is none of the program.
for _function in (
    _collected, Watch.__call__, Watch._known, Watch._end, Watch.look, Watch.settle, _Known.__init__, _Known.said,
    _Known.is_kept,
):  # fmt: skip
    _function.__code__ = _function.__code__.replace(co_filename=tracecomp.__file__)


@functools.cache
def modules() -> tuple[Any, ...]:
    """The package's modules that remember something under identities, or may."""
    return tuple(_modules())


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(tracecomp.__path__, "tracecomp."):
        if found.name.endswith("__main__") or found.name.removeprefix("tracecomp.").startswith(APART):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:  # of a library that is not here
            continue


@contextmanager
def numbered_by(identity: Callable[[object], int]) -> Iterator[None]:
    """The package with another ``id``."""
    for module in modules():
        module.id = identity
    try:
        yield
    finally:
        for module in modules():
            vars(module).pop("id", None)  # a module may have two names


@contextmanager
def watched() -> Iterator[Watch]:
    """Run the package with an ``id`` that watches, and check once more at the end."""
    watch = Watch()
    with numbered_by(watch):
        yield watch
        watch.settle()


# ---- the suite under it


class _Plugin:
    watch = Watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        with watched() as self.watch:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before = set(self.watch.stale)
        result = yield
        self.watch.look()
        for found in set(self.watch.stale) - before:
            print(f"\n{found}: {item.nodeid}")
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("identities")
        terminalreporter.line(f"{self.watch.asked} identities asked for")
        for found, times in self.watch.stale.items():
            terminalreporter.line(f"{times} times: {found}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Plugin(), "identities")
