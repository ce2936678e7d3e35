"""The names of ``torch.cuda`` on a machine without accelerators: queries answer so, requests are refused."""

from __future__ import annotations

from typing import Any

from tracecomp.cuda import amp as amp
from tracecomp.eager.absent_device import names_of

globals().update(names_of("cuda"))
default_generators: tuple[Any, ...] = ()
has_half = has_magma = False
OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__doc__": "A device has not enough memory."})
