"""``torch.cuda.amp``: without a GPU both are disabled, with a warning."""

from __future__ import annotations

import functools
from typing import Any

from tracecomp import amp
from tracecomp.ir.types import DType, float16


class autocast(amp.autocast):
    """``amp.autocast("cuda", ...)``."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler("cuda", ...)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", *args, **kwargs)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
