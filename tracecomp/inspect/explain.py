"""``explain``: what was captured, what each pass decided, which nodes share a kernel and why the rest does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.dump import Dump
from tracecomp.inspect.capture import settled
from tracecomp.passes import build
from tracecomp.passes.explain import describe_built
from tracecomp.record.describe import describe_recording


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What happens to ``fn(*args, **kwargs)`` on its way to native code, in words.

    CaptureError if it cannot be recorded.
    """
    recording, _ = settled(fn, args, kwargs)
    built = build(recording.graph, dump=Dump("", enabled=False))
    return f"{describe_recording(recording)}\n{describe_built(built.stages, built.lowered.partition)}"
