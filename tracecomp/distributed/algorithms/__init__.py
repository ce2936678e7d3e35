"""``torch.distributed.algorithms``."""

from tracecomp.nn.parallel.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
