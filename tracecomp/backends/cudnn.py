"""The names of ``torch.backends.cudnn``, which is not available."""

from __future__ import annotations

from tracecomp.backends.settings import flags_of, no

enabled = benchmark = allow_tf32 = False
deterministic = True
benchmark_limit: int | None = None
is_available = no
flags = flags_of(globals())


def version() -> int | None:
    return None


def is_acceptable(tensor: object) -> bool:
    """Return False: tensors are on the CPU."""
    return False
