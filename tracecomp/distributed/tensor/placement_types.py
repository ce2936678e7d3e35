"""Placements: the part of a tensor that each process has, along one dimension of a mesh."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """The base of all placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether processes have parts along ``dim``, or along any dimension."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether processes have operands of a pending reduction, by ``reduce_op`` or any operator."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Parts along dimension ``dim``, with the lengths of ``chunk``: the last ones are shorter, or empty."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """Return the length of the part of process ``rank``, and its start.

        >>> from tracecomp.distributed.tensor import Shard
        >>> [Shard.local_shard_size_and_offset(10, 4, rank) for rank in range(4)]
        [(3, 0), (3, 3), (3, 6), (1, 9)]
        """
        whole = -(-curr_local_size // num_chunks)
        begin = min(whole * rank, curr_local_size)
        return min(whole * (rank + 1), curr_local_size) - begin, begin


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Parts along ``dim`` of ``split_factor`` parts that another dimension of the mesh has created."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """The whole tensor everywhere."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Operands of a pending reduction."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
