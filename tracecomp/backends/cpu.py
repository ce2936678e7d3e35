"""The names of ``torch.backends.cpu``."""

from __future__ import annotations

import numpy as np


def get_cpu_capability() -> str:
    """Return the widest vectors of this processor: ``AVX512``, ``AVX2`` or ``DEFAULT``."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return "AVX512" if any(f.startswith("AVX512") for f in found) else "AVX2" if "AVX2" in found else "DEFAULT"
