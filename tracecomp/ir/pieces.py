"""An extent split into pieces of one length, and a shorter remainder: the tiling of every loop."""

from __future__ import annotations

from dataclasses import dataclass

from tracecomp.ir.index import Index


@dataclass(frozen=True, slots=True)
class Pieces:
    """``count`` neighbouring pieces of ``length`` each, from ``first`` on."""

    count: int
    first: int
    length: int

    @property
    def end(self) -> int:
        """End of the last piece."""
        return self.first + self.count * self.length

    def start(self, number: Index) -> Index:
        """Start of a piece."""
        return number * self.length + self.first


def pieces(extent: int, length: int, first: int = 0) -> tuple[Pieces, ...]:
    """Split an extent that begins at ``first`` into full pieces and a separate remainder; no piece is empty."""
    whole, rest = divmod(extent, length) if length else (0, extent)
    found = Pieces(whole, first, length), Pieces(1, first + whole * length, rest)
    return tuple(p for p in found if p.count and p.length)
