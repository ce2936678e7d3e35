"""``torch.ops.aten``: the primitives' names there, and operators without a function in tracecomp."""

from __future__ import annotations

from tracecomp.aten import calls, kernels

__all__ = ["calls", "kernels"]
