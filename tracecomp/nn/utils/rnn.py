"""Sequences of unequal length: padded and packed forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import ref

from tracecomp.base.errors import type_name
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.modes import enable_grad, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64


class _Packed(NamedTuple):
    data: Any  # a tensor, or ``_Padded``
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class _Padded:
    """The elements of a packed sequence before packing: ``x`` (T, N, *), zero after the end of each of N sequences.

    Recurrent layers read them padded. Packing them needs the lengths as numbers, so ``packed`` does it when asked.
    A recording knows the tensors of its arguments but not how they were made. It reads ``x`` only if it made ``x``.
    The program may also have written to the packed elements after their first use.
    """

    def __init__(self, x: Tensor, lengths: Tensor) -> None:
        self.x = _fill_after(x, lengths, 0.0)
        self.lengths = lengths
        self._recorder = None if modes.recorder is None else ref(modes.recorder)
        self._packed: Tensor | None = None

    @property
    def is_current(self) -> bool:
        """Whether layers can read ``x`` instead of the packed elements."""
        return self._is_here and self._packed is None

    @property
    def _is_here(self) -> bool:
        return modes.recorder is (None if self._recorder is None else self._recorder())

    def packed(self, batch_sizes: Tensor) -> Tensor:
        """The elements step by step, with the gradient history of ``x`` whatever mode asks for them first."""
        if self._packed is not None:
            return self._packed
        with enable_grad():
            made = T.cat([self.x[t, :count] for t, count in enumerate(_as_list(batch_sizes))])
        if self._is_here:
            self._packed = made
            del self.x, self.lengths  # a call that returns packed elements leaves no other tensors behind
        return made


class PackedSequence(_Packed):
    """Sequences side by side, step by step: ``batch_sizes[t]`` of them have a step t, longest first."""

    def __new__(
        cls, data: Tensor | _Padded, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        if batch_sizes is None:
            raise ValueError("batch_sizes should not be None")
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    @property
    def data(self) -> Tensor:
        """The elements of all sequences, step by step."""
        data: Any = tuple.__getitem__(self, 0)
        return data.packed(self.batch_sizes) if isinstance(data, _Padded) else data

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, *tuple.__getitem__(self, slice(1, None))))

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __reduce__(self) -> Any:
        return PackedSequence, tuple(self)

    def __repr__(self) -> str:
        return repr(_Packed(*self)).replace(_Packed.__name__, type(self).__name__, 1)

    def padded(self) -> tuple[Tensor, Tensor]:
        """The elements (T, N, *) with zeros behind each sequence, and the lengths of the N."""
        data: Any = tuple.__getitem__(self, 0)
        if isinstance(data, _Padded) and data.is_current:
            return data.x, data.lengths
        return _unpacked(self.data, _as_list(self.batch_sizes)), T.tensor(self.lengths, dtype=int64)

    def with_padded(self, x: Tensor, lengths: Tensor) -> PackedSequence:
        """The same steps of the same sequences, with the elements of ``x`` (T, N, *)."""
        rest: Any = tuple.__getitem__(self, slice(1, None))
        return PackedSequence(_Padded(x, lengths), *rest)

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


def _steps(x: Tensor, lengths: Tensor) -> Tensor:
    """Return a mask (T, N, 1, ...) of the elements of ``x`` (T, N, *) within the sequences."""
    within = T.arange(x.shape[0]).unsqueeze(1) < lengths
    return within.reshape(*within.shape, *[1] * (x.ndim - 2))


def _fill_after(x: Tensor, lengths: Tensor, value: float) -> Tensor:
    """``x`` (T, N, *) with ``value`` after the end of each of N sequences."""
    return T.where(_steps(x, lengths), x, T.full((), value, dtype=x.dtype))


def pack_padded_sequence(
    input: Tensor, lengths: object, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (T, N, *) with the lengths of the N sequences.

    RuntimeError when a length is not positive, or, with ``enforce_sorted``, when they are not decreasing.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"pack_padded_sequence(): argument 'input' must be Tensor, not {type_name(input)}")
    # Lengths stay a tensor, so that a recording holds for any of them.
    sizes = lengths.to(int64) if isinstance(lengths, Tensor) else T.tensor(_as_list(lengths), dtype=int64)
    sorted_indices = None
    if not enforce_sorted:
        sorted_indices = T.argsort(sizes, descending=True, stable=True)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
        sizes = sizes.index_select(0, sorted_indices)
    x = input.transpose(0, 1) if batch_first else input
    if sizes.shape[0] != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {sizes.shape[0]} (batch_size={x.shape[1]})"
        )
    if bool((sizes <= 0).any()):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if enforce_sorted and bool((sizes[:-1] < sizes[1:]).any()):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    if bool(sizes[0] != x.shape[0]):
        longest = int(sizes[0])
        if longest > x.shape[0]:
            raise RuntimeError(f"Expected lengths of at most {x.shape[0]} steps, but got {longest}")
        x = x[:longest]
    batch_sizes = (T.arange(x.shape[0]).unsqueeze(1) < sizes).sum(1)
    return PackedSequence(_Padded(x, sizes), batch_sizes, sorted_indices)


def _unpacked(data: Tensor, counts: list[int]) -> Tensor:
    """(T, N, *), zero after each sequence's end, from the elements step by step, of which step t has ``counts[t]``."""
    rows, start = [], 0
    rest = tuple(data.shape[1:])
    for count in counts:
        row = data[start : start + count]
        if count < counts[0]:
            row = T.cat([row, T.zeros(counts[0] - count, *rest, dtype=row.dtype)])
        rows.append(row)
        start += count
    return T.stack(rows)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded (T, N, *) and the lengths: the inverse of ``pack_padded_sequence``.

    ValueError when ``total_length`` is less than the longest sequence.
    """
    if not isinstance(sequence, PackedSequence):
        raise AttributeError(f"pad_packed_sequence(): expected a PackedSequence, not {type_name(sequence)}")
    longest = sequence.batch_sizes.shape[0]
    if total_length is not None and total_length < longest:
        raise ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    x, lengths = sequence.padded()
    if padding_value != 0:
        x = _fill_after(x, lengths, padding_value)
    if total_length is not None and total_length > longest:
        more = (total_length - longest, *x.shape[1:])
        x = T.cat([x, T.full(more, padding_value, dtype=x.dtype)])
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
    check_takes("pad_sequence", map(type, sequences))
    if padding_side not in ("right", "left"):
        raise RuntimeError(f"padding_side must be 'right' or 'left', got {padding_side!r}")
    if not len(sequences):
        raise RuntimeError("pad_sequence(): received an empty list of sequences")
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
