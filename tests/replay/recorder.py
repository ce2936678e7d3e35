"""A pytest plugin (``-p tests.replay.recorder``) that writes down every graph which the tests compile.

``TRACECOMP_REPLAY`` names the file; graphs are added to it, each once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from tests.replay.corpus import Recorded
from tracecomp.base import config
from tracecomp.compiled.backends import Native
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes import building

SETTINGS = ("fusion", "fast_math", "skip_passes", "stop_after")
MAX_TEXT = 200_000

_seen: set[str] = set()


def record(graph: Graph, aliases: Mapping[int, int] | None, frozen: Set[int]) -> None:
    """Add a graph to the file, unless it is there or very large."""
    now, default = config.current(), config.Settings()
    settings = {name: getattr(now, name) for name in SETTINGS if getattr(now, name) != getattr(default, name)}
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0].rpartition("tests/")[2]
    name = f"{test or 'program'} {graph.name}"
    found = Recorded(name, print_graph(graph), dict(aliases or {}), tuple(sorted(frozen)), settings)
    key = found.graph.partition("{")[2] + repr((found.aliases, found.frozen, found.settings))
    if key not in _seen and len(found.graph) <= MAX_TEXT:
        _seen.add(key)
        with Path(os.environ["TRACECOMP_REPLAY"]).open("a", encoding="utf-8") as file:
            file.write(found.to_json() + "\n")


def pytest_configure(config: Any) -> None:
    """Called by pytest when the plugin is loaded: graphs are seen where programs and tests hand them over."""
    make, build = Native.__init__, building.build

    def recording_make(self: Native, graph: Graph, aliases: Any, threads: int | None, frozen: Set[int]) -> None:
        record(graph, aliases, frozen)
        make(self, graph, aliases, threads, frozen)

    def recording_build(graph: Graph, aliases: Any = None, *others: Any, **options: Any) -> building.Built:
        record(graph, aliases, frozenset())
        return build(graph, aliases, *others, **options)

    Native.__init__ = recording_make  # type: ignore[method-assign]
    building.build = recording_build
