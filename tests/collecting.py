"""Garbage collection for tests that observe which objects are freed."""

from __future__ import annotations

import gc

from tracecomp.eager_kernels import background


def collect() -> None:
    """Free everything unreachable.

    The second thread is waited for. Its work may reference objects, and ``gc.collect`` returns at once while another
    thread collects.
    """
    background.finish()
    gc.collect()
