"""Placements: what each process along one dimension of a mesh holds of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """The base of all placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether processes hold parts along ``dim``, or along any dimension."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process holds the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether what processes hold is yet to be reduced, by ``reduce_op`` or any operator."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Parts along dimension ``dim``, as long as ``chunk`` makes them: the last ones are shorter, or empty."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """How long the part of process ``rank`` is, and where it begins.

        >>> from tracecomp.distributed.tensor import Shard
        >>> [Shard.local_shard_size_and_offset(10, 4, rank) for rank in range(4)]
        [(3, 0), (3, 3), (3, 6), (1, 9)]
        """
        whole = -(-curr_local_size // num_chunks)
        begin = min(whole * rank, curr_local_size)
        return min(whole * (rank + 1), curr_local_size) - begin, begin


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Parts along ``dim`` of parts that another dimension of the mesh has made, ``split_factor`` of them."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """The whole tensor everywhere."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Operands of a reduction that is yet to be done."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
