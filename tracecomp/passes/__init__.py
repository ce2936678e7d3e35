"""From a recorded graph to a program of loop kernels. ``building.build`` runs everything.

Who may need no pass at all, as a call whose program comes from the cache, names those here as ``passes.build``: they
are loaded when they are first asked for.
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
