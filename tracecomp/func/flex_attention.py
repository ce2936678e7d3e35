"""``nn.attention.flex_attention``: attention whose scores and mask are functions of positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracecomp.base.errors import at_user_line
from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.func.vmap import vmap
from tracecomp.functional import names as T
from tracecomp.ir.types import bool_, float32, float64
from tracecomp.nn.functional import pad

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
    "noop_mask", "or_masks",
]  # fmt: skip
_DEFAULT_SPARSE_BLOCK_SIZE = 128
"""Queries and keys of a block, as in PyTorch."""
Mod = Callable[..., Any]


def _over_positions(fn: Mod, scores: bool) -> Mod:
    """``fn`` of one position as a function of vectors of batches, heads, queries and keys; scores have all four."""
    first = (0,) if scores else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        fn = vmap(fn, in_dims=(*first, *dims))
    return fn


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """True everywhere."""
    return batch.new_ones((), dtype=bool_)


def and_masks(*mask_mods: Mod) -> Mod:
    """Return the mask that is true where all are. RuntimeError unless they are functions."""
    _check_functions(mask_mods)

    def all_hold(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            found = found & mod(b, h, q_idx, kv_idx)
        return found

    return all_hold


def or_masks(*mask_mods: Mod) -> Mod:
    """Return the mask that is true where any is. RuntimeError unless they are functions."""
    _check_functions(mask_mods)

    def any_holds(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = ~noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            found = found | mod(b, h, q_idx, kv_idx)
        return found

    return any_holds


def _check_functions(mods: tuple[Mod, ...]) -> None:
    if not all(callable(mod) for mod in mods):
        raise RuntimeError(at_user_line(f"All inputs should be callable mask_mods: {mods}"))


def create_mask(
    mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device | None = None
) -> Tensor:
    """The bools of shape (B, H, Q_LEN, KV_LEN) that ``mod_fn(b, h, q_idx, kv_idx)`` gives, for each position."""
    positions = [T.arange(n, device=device) for n in (B or 1, H or 1, Q_LEN, KV_LEN)]
    found: Tensor = _over_positions(mod_fn, scores=False)(*positions)
    return found


class BlockMask:
    """A mask as blocks of queries and keys: for each row of blocks, how many are met, and which."""

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None, BLOCK_SIZE: tuple[int, int], mask_mod: Mod,
    ) -> None:  # fmt: skip
        if kv_indices.ndim < 2:
            raise RuntimeError(at_user_line("BlockMask must have at least 2 dimensions"))
        self.seq_lengths, self.kv_num_blocks, self.kv_indices = seq_lengths, kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Mod | None = None, seq_lengths: tuple[int, int] | None = None,
    ) -> BlockMask:  # fmt: skip
        """Build a mask from the numbers and indices of partial blocks, and of full blocks."""
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        lengths = seq_lengths or (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        return cls(lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, size, mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """A 1 for each block that is met, of shape (B, H, rows of blocks, columns of blocks)."""
        found = _ones_at(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            found = found | _ones_at(self.full_kv_num_blocks, self.full_kv_indices)
        return found

    def sparsity(self) -> float:
        """Percent of the positions that are in no block that is met."""
        met = int(self.to_dense().sum()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - met / self.numel())

    def to(self, device: Device) -> BlockMask:
        """Itself: there is one device."""
        return self

    def __getitem__(self, index: Any) -> BlockMask:
        """Some batches, heads or rows of blocks; ``mask_mod`` of the result has to be set, and holds everywhere."""
        full = [None if x is None else x[index] for x in (self.full_kv_num_blocks, self.full_kv_indices)]
        counts, places = self.kv_num_blocks[index], self.kv_indices[index]
        return BlockMask(self.seq_lengths, counts, places, full[0], full[1], self.BLOCK_SIZE, noop_mask)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _ones_at(counts: Tensor, places: Tensor) -> Tensor:
    """Int32 ones at the first ``counts`` of ``places`` along the last axis."""
    met = (T.arange(places.shape[-1]) < counts[..., None]).int()
    return T.zeros_like(met).scatter_(-1, places.long(), met)


def create_block_mask(
    mask_mod: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device | None = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
) -> BlockMask:  # fmt: skip
    """Build the blocks that ``mask_mod(b, h, q_idx, kv_idx)`` selects. RuntimeError unless it is a function."""
    if not callable(mask_mod):
        raise RuntimeError(at_user_line(f"create_block_mask: mask_mod must be a function, but got {mask_mod}"))
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    counts = mask.unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows)).sum((-3, -1))
    full = counts == rows * columns
    parts = [(met.int().sum(-1).int(), T.argsort(met.int(), -1, descending=True, stable=True).int())
             for met in ((counts > 0) & ~full, full)]  # fmt: skip
    return BlockMask((Q_LEN, KV_LEN), *parts[0], *parts[1], (rows, columns), mask_mod)


@dataclass(frozen=True)
class AuxRequest:
    """Additional results of ``flex_attention`` to return."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The results requested by :class:`AuxRequest`."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Mod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    kernel_options: dict[str, object] | None = None, *, return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """Attention of scores that ``score_mod(score, b, h, q_idx, kv_idx)`` makes of the products, where the mask holds.

    ``query`` (B, Hq, L, E), ``key`` (B, Hkv, S, E), ``value`` (B, Hkv, S, Ev) to (B, Hq, L, Ev). ``scale`` is
    1/sqrt(E) unless given. With ``enable_gqa``, Hq is a multiple of Hkv. ``kernel_options`` change nothing. Queries
    that meet no key give zeros. ValueError for shapes that do not fit, and for a mask of another length.
    """
    _check(query, key, value, block_mask, enable_gqa)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    precise = float64 if query.dtype == float64 else float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-2, -1)).to(precise) * factor
    places = [T.arange(n) for n in scores.shape]
    if score_mod is not None:
        scores = _over_positions(score_mod, scores=True)(scores, *places).to(precise)
    if block_mask is not None:
        mask = _over_positions(block_mask.mask_mod, scores=False)(*places)
        scores = T.where(mask, scores, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = T.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
    found = (weights.to(query.dtype) @ value).to(query.dtype)
    wanted = return_aux or AuxRequest(lse=return_lse)
    if return_aux is None and not return_lse:
        return found
    lse = T.logsumexp(scores, -1) if wanted.lse else None
    if return_lse:
        return found, lse
    return found, AuxOutput(lse, T.amax(scores, -1) if wanted.max_scores else None)


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
    if not query.ndim == key.ndim == value.ndim == 4:
        raise NotImplementedError(
            at_user_line(f"flex_attention: query, key and value must be 4D tensors, got {shapes}")
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2] or key.shape[1] != value.shape[1]:
        raise ValueError(at_user_line(f"flex_attention: shapes of query, key and value do not fit: {shapes}"))
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(
            at_user_line(
                "Expected query, key, and value to have the same dtype, but got query.dtype: "
                f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
            )
        )
    if query.shape[1] != key.shape[1] and not (enable_gqa and query.shape[1] % key.shape[1] == 0):
        raise ValueError(
            at_user_line(
                "flex_attention: Expect query and key/value to have the same number of heads, or multiples with "
                f"enable_gqa=True, but got Hq={query.shape[1]} and Hkv={key.shape[1]}."
            )
        )
    if block_mask is not None and block_mask.seq_lengths != (query.shape[-2], key.shape[-2]):
        raise ValueError(
            at_user_line(
                f"flex_attention: block_mask was created for lengths {block_mask.seq_lengths} but got q_len="
                f"{query.shape[-2]} and kv_len={key.shape[-2]}."
            )
        )
