"""Machine code of eager operators for any shape; loaded, with the compiler, on first use."""

from __future__ import annotations

from tracecomp.base.lazy_names import later

__getattr__ = later(
    "tracecomp.eager_kernels",
    {
        "contract": "products",
        "convolve": "convolutions",
        "counted_image": "making",
        "eliminate": "eliminations",
        "evaluate_natively": "elementwise",
        "grouped_product": "groups",
        "program_image": "making",
        "random_bits": "philox",
        "reduce_in_order": "sums",
        "run_region": "regions",
        "transform": "transforms",
    },
)
