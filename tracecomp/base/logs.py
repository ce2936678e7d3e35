"""Logging by topic: ``TRACECOMP_LOG=graphs,recompiles`` prints to standard error; without it all is quiet.

Each topic is a logger of the standard library, ``tracecomp.graphs`` and so on, so that programs may handle it in their
own way. Whoever logs asks ``wanted(topic)`` first, so that a topic that nobody reads costs a look-up.
"""

from __future__ import annotations

import logging
import sys

from tracecomp.base import config
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.topics import TOPICS

_heard: set[str] = set()


def wanted(topic: str) -> bool:
    """Return whether somebody reads a topic."""
    chosen = config.current().log
    # ``logging`` takes its lock before the block that releases it: Ctrl-C in between would stop every other thread.
    with uninterrupted:
        if (topic in chosen or "all" in chosen) and topic not in _heard:
            _hear(topic)
        return logging.getLogger(f"tracecomp.{topic}").isEnabledFor(logging.INFO)


def log(topic: str, text: str) -> None:
    """Write to a topic."""
    assert topic in TOPICS
    with uninterrupted:
        logging.getLogger(f"tracecomp.{topic}").info(text)


def _hear(topic: str) -> None:
    """Send a topic to standard error, whatever that is when something is written."""
    _heard.add(topic)
    logger = logging.getLogger(f"tracecomp.{topic}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = _ToStandardError()
    handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    logger.addHandler(handler)


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)
