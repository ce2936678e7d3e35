"""Settings of PyTorch's code generator. Any name may be set, without effect: another compiler runs."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

from tracecomp.base.module_settings import patched

debug = max_autotune = max_autotune_gemm = max_autotune_pointwise = coordinate_descent_tuning = freezing = False
conv_1x1_as_mm = cpp_wrapper = fallback_random = force_fuse_int_mm_with_mul = use_mixed_mm = False
epilogue_fusion = fx_graph_cache = layout_optimization = pattern_matcher = shape_padding = split_reductions = True
compile_threads = 1
cpp = SimpleNamespace(threads=-1, simdlen=None, min_chunk_size=512, enable_kernel_profile=False, weight_prepack=True)
triton = SimpleNamespace(
    cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True, descriptive_names="original_aten"
)

patch = partial(patched, sys.modules[__name__])
"""Settings for a block: ``patch("name", value)``, ``patch({"name": value})`` or ``patch(name=value)``."""
