"""Logging by topic: ``TRACECOMP_LOG=graphs,recompiles`` prints to standard error; by default nothing is logged.

Each topic is a logger of the standard library, such as ``tracecomp.graphs``, so that programs may add handlers. Check
``wanted(topic)`` before building a message, so that a disabled topic costs only a look-up.
"""

from __future__ import annotations

import logging
import sys

from tracecomp.base import config
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.topics import TOPICS

_heard: set[str] = set()


def wanted(topic: str) -> bool:
    """Return whether a topic is enabled."""
    chosen = config.current().log
    # ``logging`` acquires its lock before the block that releases it: Ctrl-C in between would block all other threads.
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
    """Send a topic to the current standard error."""
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
