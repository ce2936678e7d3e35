"""``DistributedDataParallel``, of which there are no objects: programs run in one process."""

from __future__ import annotations

from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.nn.module import Module


class DistributedDataParallel(Module):
    """Needs several processes; RuntimeError when it is made, as in a PyTorch without ``distributed``."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(at_user_line("DistributedDataParallel needs torch.distributed, which is not available"))
