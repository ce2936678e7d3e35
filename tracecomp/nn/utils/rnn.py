"""Sequences of unequal length: padded and packed forms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences side by side, step by step: ``batch_sizes[t]`` of them have a step t, longest first."""

    def __new__(
        cls, data: Tensor, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        if batch_sizes is None:
            raise ValueError("batch_sizes should not be None")
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with converted data."""
        return PackedSequence(self.data.to(*args, **kwargs), *self[1:])

    @property
    def lengths(self) -> list[int]:
        """Length of every sequence, in sorted order."""
        sizes = self.batch_sizes.tolist()
        return [sum(size > i for size in sizes) for i in range(sizes[0])]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``."""
    if permutation is None:
        return None
    return T.zeros_like(permutation).scatter(0, permutation, T.arange(permutation.numel(), dtype=permutation.dtype))


def _as_list(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: object, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (T, N, *) with the lengths of the N sequences.

    RuntimeError when a length is not positive, or, with ``enforce_sorted``, when they are not decreasing.
    """
    sizes = _as_list(lengths)
    order = list(range(len(sizes)))
    sorted_indices = None
    if not enforce_sorted:
        order.sort(key=lambda i: -sizes[i])
        sorted_indices = T.tensor(order, dtype=int64)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
        sizes = [sizes[i] for i in order]
    x = input.transpose(0, 1) if batch_first else input
    if len(sizes) != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={x.shape[1]})"
        )
    if any(n <= 0 for n in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in itertools.pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    if sizes[0] > x.shape[0]:
        raise RuntimeError(f"Expected lengths of at most {x.shape[0]} steps, but got {sizes[0]}")
    counts = [sum(n > t for n in sizes) for t in range(sizes[0])]
    data = T.cat([x[t, :count] for t, count in enumerate(counts)])
    return PackedSequence(data, T.tensor(counts, dtype=int64), sorted_indices)


def unpack(sequence: PackedSequence, padding_value: float = 0.0, total_length: int | None = None) -> Tensor:
    """(T, N, *) in the packed order of sequences."""
    counts = _as_list(sequence.batch_sizes)
    rows, start = [], 0
    rest = tuple(sequence.data.shape[1:])
    for count in counts:
        row = sequence.data[start : start + count]
        if count < counts[0]:
            row = T.cat([row, T.full((counts[0] - count, *rest), padding_value, dtype=row.dtype)])
        rows.append(row)
        start += count
    x = T.stack(rows)
    if total_length is not None and total_length > len(counts):
        more = (total_length - len(counts), counts[0], *rest)
        x = T.cat([x, T.full(more, padding_value, dtype=x.dtype)])
    return x


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded (T, N, *) and the lengths: the inverse of ``pack_padded_sequence``.

    ValueError when ``total_length`` is less than the longest sequence.
    """
    longest = sequence.batch_sizes.shape[0]
    if total_length is not None and total_length < longest:
        raise ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    x = unpack(sequence, padding_value, total_length)
    lengths = T.tensor(sequence.lengths, dtype=int64)
    if sequence.unsorted_indices is not None:
        x = x.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices)
    return (x.transpose(0, 1) if batch_first else x), lengths


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (T_i, *) padded to the longest: (T, N, *)."""
    if not isinstance(sequences, Sequence | Tensor):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("right", "left"):
        raise ValueError(f"padding_side must be 'right' or 'left', got {padding_side!r}")
    longest = max(x.shape[0] for x in sequences)
    rows = []
    for x in sequences:
        filler = T.full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype)
        rows.append(x if x.shape[0] == longest else T.cat([filler, x] if padding_side == "left" else [x, filler]))
    return T.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor without their padding."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(x.unbind(0), _as_list(lengths), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (T_i, *)."""
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
