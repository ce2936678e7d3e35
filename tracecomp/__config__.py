"""The names of ``torch.__config__``: what the library is made of."""

from __future__ import annotations

import numpy as np

from tracecomp.runtime.threads import get_num_threads
from tracecomp.version import __version__


def show() -> str:
    """A few lines about the libraries at work."""
    return f"tracecomp, compatible with PyTorch {__version__}\n  - numpy {np.__version__}\n  - the CPU only\n"


def parallel_info() -> str:
    """How many threads compiled programs use."""
    return f"compiled programs: {get_num_threads()} threads\n"
