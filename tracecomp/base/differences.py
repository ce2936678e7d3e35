"""Differences from PyTorch under the same name, for docs/reports/surface.md and ``tracecomp doctor``."""

from __future__ import annotations

DIFFERS = {
    "set_flush_denormal": "denormal numbers are always kept",
    "multinomial": "draws by inverse distribution function",
    "poisson": "drawn by numpy; not captured in graphs",
    "binomial": "drawn by numpy; not captured in graphs",
    "empty": "returns zeros", "empty_like": "returns zeros", "empty_strided": "returns zeros",
    "empty_permuted": "returns zeros",
    "nonzero": "size depends on values", "masked_select": "size depends on values", "unique": "size depends on values",
    "scan": "PyTorch has it in `torch._higher_order_ops`",
    "while_loop": "PyTorch has it in `torch._higher_order_ops`",
    "vmap": "traces the first example: Python side effects happen once",
    "autocast": "CPU only; for other devices it is disabled with a warning",
    "DataParallel": "calls its module on the CPU",
}  # fmt: skip
