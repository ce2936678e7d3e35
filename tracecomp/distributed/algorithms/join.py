"""``torch.distributed.algorithms.join``: blocks in which processes may have different numbers of inputs."""

from tracecomp.nn.parallel.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
