"""From a recorded graph to a program of loop kernels. ``building.build`` runs everything.

A call whose program comes from the cache needs no pass. The attributes of this package, such as ``passes.build``, are
therefore loaded on first use.
"""

from __future__ import annotations

from tracecomp.base.lazy_names import later

__getattr__ = later(
    "tracecomp.passes",
    {
        "LOWERING": "pipeline",
        "PIPELINE": "pipeline",
        "build": "building",
        "describe_partition": "explain",
        "describe_schedules": "explain",
        "lower": "pipeline",
        "operations": "cost.work",
        "split_complex": "graph.complex_to_real",
    },
)
