"""The inner modules of ``torch.utils.data`` by their names there."""

from tracecomp.utils.data import collate, fetch, worker
from tracecomp.utils.data._utils import pin_memory

__all__ = ["collate", "fetch", "pin_memory", "worker"]
