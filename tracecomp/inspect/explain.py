"""``explain``: what was captured, what each pass decided, which nodes share a kernel and why the rest does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.compiled.backends import native
from tracecomp.inspect.capture import settled
from tracecomp.record.describe import describe_recording


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What happens to ``fn(*args, **kwargs)`` on its way to native code, in words.

    CaptureError if it cannot be recorded.
    """
    recording, _ = settled(fn, args, kwargs)
    return f"{describe_recording(recording)}\n{native(recording.graph, {}, None, frozenset()).explain()}"
