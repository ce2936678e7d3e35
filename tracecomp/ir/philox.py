"""The generator Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): its numbers, and which elements have which."""

from __future__ import annotations

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
"""Of Philox4x32 (Salmon et al., 2011), like all numbers below: they are the generator."""
WEYL = (0x9E3779B9, 0xBB67AE85)
"""What the key grows by in each round."""
ROUNDS = 10
"""Rounds of Philox4x32-10."""


def blocks(count: int) -> int:
    """How many counter values ``count`` elements use up: element i is word ``i // blocks`` of block ``i % blocks``."""
    return -(-count // 4)
