"""Differences from PyTorch under the same name, for docs/reports/surface.md and ``tracecomp doctor``."""

from __future__ import annotations

DIFFERS = {
    "set_flush_denormal": "denormal numbers are always kept",
    "multinomial": "draws by inverse distribution function",
    "poisson": "drawn by numpy: not captured",
    "binomial": "drawn by numpy: not captured",
    "empty": "zeros", "empty_like": "zeros", "empty_strided": "zeros", "empty_permuted": "zeros",
    "nonzero": "size depends on values", "masked_select": "size depends on values", "unique": "size depends on values",
    "scan": "torch's is in `torch._higher_order_ops`",
    "while_loop": "torch's is in `torch._higher_order_ops`",
    "vmap": "traces the first example: Python side effects happen once",
    "autocast": "on the CPU only; others disable it with a warning",
    "DataParallel": "one device: only the names change",
    "SyncBatchNorm": "one process",
}  # fmt: skip
