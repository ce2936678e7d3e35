"""``prim``: the primitive operators, called with tensors. Type checkers read the stub next to this file."""

from __future__ import annotations

from tracecomp.ops.prim import prim

__all__ = ["prim"]
