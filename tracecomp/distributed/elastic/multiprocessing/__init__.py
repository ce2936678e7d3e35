"""``torch.distributed.elastic.multiprocessing``."""

from tracecomp.distributed.elastic.multiprocessing import errors

__all__ = ["errors"]
