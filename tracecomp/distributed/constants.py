"""``torch.distributed.constants``."""

from tracecomp.distributed.processes import default_pg_timeout

__all__ = ["default_pg_timeout"]
