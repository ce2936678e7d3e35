"""Chains of steps over items, under the names of ``torch.utils.data.datapipes``."""

from tracecomp.utils.data.datapipes import iter, map
from tracecomp.utils.data.datapipes.base import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe", "iter", "map"]
