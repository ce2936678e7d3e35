"""PyTorch's location of ``func.flex_attention``, which is in a layer above ``nn`` because its masks are mapped."""

from __future__ import annotations

from importlib import import_module

_there = import_module("tracecomp.func.flex_attention")

AuxOutput, AuxRequest, BlockMask = _there.AuxOutput, _there.AuxRequest, _there.BlockMask
flex_attention, create_block_mask, create_mask = _there.flex_attention, _there.create_block_mask, _there.create_mask
and_masks, or_masks, noop_mask = _there.and_masks, _there.or_masks, _there.noop_mask
_DEFAULT_SPARSE_BLOCK_SIZE: int = _there._DEFAULT_SPARSE_BLOCK_SIZE

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
    "noop_mask", "or_masks",
]  # fmt: skip
