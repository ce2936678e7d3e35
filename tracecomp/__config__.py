"""The names of ``torch.__config__``: facts about the build."""

from __future__ import annotations

import numpy as np

from tracecomp.runtime.threads import get_num_threads
from tracecomp.version import __version__


def show() -> str:
    """Return a few lines about the libraries in use."""
    return f"tracecomp, compatible with PyTorch {__version__}\n  - numpy {np.__version__}\n  - the CPU only\n"


def parallel_info() -> str:
    """Return the number of threads of compiled programs."""
    return f"compiled programs: {get_num_threads()} threads\n"
