"""Classes of operators, in PyTorch's location."""

from __future__ import annotations

from tracecomp.library import OpOverload, OpOverloadPacket, ops

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]
