"""The names of ``torch.cuda`` on a machine without accelerators: queries report that, requests raise RuntimeError."""

from __future__ import annotations

from typing import Any

from tracecomp.cuda import amp as amp
from tracecomp.eager.absent_device import names_of
from tracecomp.functional.symbols import OutOfMemoryError as OutOfMemoryError

globals().update(names_of("cuda"))
default_generators: tuple[Any, ...] = ()
has_half = has_magma = False
