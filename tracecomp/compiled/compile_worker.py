"""The worker process of ``background``: it receives packed graphs, and sends back compiled programs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tracecomp.base import config, progress
from tracecomp.base.progress import Steps
from tracecomp.compiled.backends import Native
from tracecomp.ir.graph import Graph
from tracecomp.ir.packed import PackedGraph, packed
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache

IDLE_SECONDS = 60.0
"""Time without work after which the process ends, to free its memory."""
_WATCH_SECONDS = 0.5
"""Time between two checks that the parent process runs."""
_TELL_SECONDS = 0.1
"""Time between two messages about the progress of a compilation."""
NICE = 5
"""Added to the niceness of the process: the program itself comes first."""


@dataclass(frozen=True)
class Request:
    """A graph to compile, and the other arguments of ``backends.Native``.

    ``settings`` are those that change code, and the folder of the cache.
    """

    key: str
    graph: PackedGraph
    aliases: Mapping[int, int]
    frozen: Set[int]
    settings: Mapping[str, Any]

    @staticmethod
    def of(graph: Graph, aliases: Mapping[int, int], frozen: Set[int]) -> Request:
        """The request for ``graph`` under the current settings."""
        settings = {**dict(config.code_key()), "cache_dir": config.current().cache_dir}
        return Request(program_cache.key_of(graph, host(), aliases, frozen), packed(graph), aliases, frozen, settings)


@dataclass(frozen=True)
class Answer:
    """A compiled program, as ``program_cache.Stored`` writes it; or why it failed.

    Without either, this process would make another program, because its sources, libraries or machine differ.
    """

    program: bytes = b""
    error: str = ""


def main(descriptor: int) -> None:
    """Answer requests until the other process closes the connection or ends, or has none for a while."""
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as connection:
        while connection.poll(IDLE_SECONDS):
            try:
                request = connection.recv()
            except EOFError:
                return
            connection.send(_answer(request, _Teller(connection).tell))


class _Teller:
    """Sends the steps of a compilation to the other process, a few times in a second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last = 0.0

    def tell(self, steps: Steps) -> None:
        now = time.perf_counter()
        if now - self._last >= _TELL_SECONDS:
            self._last = now
            self._connection.send(steps)


def _end_with(parent: int) -> None:
    """End the process, also in the middle of a compilation, when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(0)


def _answer(request: Request, tell: Callable[[Steps], object] = lambda steps: None) -> Answer:
    """The program of a request; ``tell`` receives the steps of its compilation."""
    with config.override(**request.settings), progress.counted(tell):
        graph = request.graph.unpacked()
        if program_cache.key_of(graph, host(), request.aliases, request.frozen) != request.key:
            return Answer()
        try:
            made = Native(graph, request.aliases, None, request.frozen)
        except Exception as error:  # of the compiler: reported in the other process
            return Answer(error=f"{type(error).__name__}: {error}")
    return Answer(program_cache.Stored(made.executable.image, made.places).to_bytes())
