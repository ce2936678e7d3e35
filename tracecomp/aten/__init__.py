"""``torch.ops.aten``: what primitives are called there, and the operators that no function of tracecomp is."""

from __future__ import annotations

from tracecomp.aten import calls, kernels

__all__ = ["calls", "kernels"]
