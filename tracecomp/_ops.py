"""Classes of operators, where PyTorch keeps them."""

from __future__ import annotations

from tracecomp.library import OpOverload, OpOverloadPacket, ops

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]
