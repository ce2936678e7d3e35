"""Custom operators of transformers that compute what an operator here does: graphs contain that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.primitives import prim


def grouped_mm_fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Products of groups of rows of ``input`` (S, K), which end at ``offs`` (G), with ``weight`` (G, K, N)."""
    return prim.grouped_mm(input, weight, offs)


KERNELS: dict[tuple[str, str], Callable[..., Any]] = {
    ("transformers::grouped_mm_fallback", "(Tensor input, Tensor weight, Tensor offs) -> Tensor"): grouped_mm_fallback,
}
"""By name and schema. The operator's own Python code loops over the groups at every call."""
