"""The names of ``torch.nn.parallel``, for several processes and a single device."""

from tracecomp.base.lazy_names import later
from tracecomp.nn.parallel.data_parallel import DataParallel, data_parallel
from tracecomp.nn.parallel.scatter_gather import gather, parallel_apply, replicate, scatter, scatter_kwargs

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter",
    "scatter_kwargs",
]  # fmt: skip

__getattr__ = later(__name__, {"DistributedDataParallel": "distributed", "distributed": "distributed"})
