"""The names of ``torch.nn.parallel`` where there is one device."""

from tracecomp.nn.parallel.data_parallel import DataParallel, data_parallel
from tracecomp.nn.parallel.distributed import DistributedDataParallel
from tracecomp.nn.parallel.scatter_gather import gather, parallel_apply, replicate, scatter, scatter_kwargs

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter",
    "scatter_kwargs",
]  # fmt: skip
