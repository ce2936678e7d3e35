"""The names of ``torch.backends.cuda``, which is not available; they do not select an attention algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracecomp.backends.settings import Settings, no
from tracecomp.base import switches

matmul = Settings(
    allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True
)
cufft_plan_cache = Settings(max_size=0, size=0)
is_built = no
_attention = switches.register({"flash": True, "mem_efficient": True, "math": True, "cudnn": True})


def _pair(kind: str) -> tuple[Any, Any]:
    def is_enabled() -> bool:
        return bool(_attention[kind])

    def enable(enabled: bool) -> None:
        """Accepted: the CPU has one attention algorithm."""
        _attention[kind] = enabled

    return is_enabled, enable


flash_sdp_enabled, enable_flash_sdp = _pair("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _pair("mem_efficient")
math_sdp_enabled, enable_math_sdp = _pair("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _pair("cudnn")


@contextmanager
def sdp_kernel(**kinds: bool) -> Iterator[None]:
    """Do nothing: the CPU has one attention algorithm."""
    yield
