"""The generator Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): its constants, and the numbers of each
element."""

from __future__ import annotations

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
"""Multipliers of Philox4x32 (Salmon et al., 2011); like all constants below they define the generator."""
WEYL = (0x9E3779B9, 0xBB67AE85)
"""Increments of the key in each round."""
ROUNDS = 10
"""Rounds of Philox4x32-10."""


def blocks(count: int) -> int:
    """Number of counter values for ``count`` elements: element i is word ``i // blocks`` of block ``i % blocks``."""
    return -(-count // 4)
