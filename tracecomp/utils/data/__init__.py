"""Datasets and loaders under the names of torch.utils.data."""

import sys

from tracecomp.utils.data import _utils, distributed
from tracecomp.utils.data.collate import collate, default_collate, default_collate_fn_map, default_convert
from tracecomp.utils.data.dataloader import DataLoader
from tracecomp.utils.data.datapipes import IterDataPipe, MapDataPipe, functional_datapipe
from tracecomp.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tracecomp.utils.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tracecomp.utils.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "collate",
    "default_collate",
    "default_collate_fn_map",
    "default_convert",
    "distributed",
    "functional_datapipe",
    "get_worker_info",
    "random_split",
]  # fmt: skip

sys.modules[f"{__name__}._utils.collate"] = _utils.collate
sys.modules[f"{__name__}._utils.fetch"] = _utils.fetch
sys.modules[f"{__name__}._utils.worker"] = _utils.worker
