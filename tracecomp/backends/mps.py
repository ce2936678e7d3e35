"""The names of ``torch.backends.mps``, which is not available."""

from tracecomp.backends.settings import no

is_available = is_built = no


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Return False: the device is not available."""
    return False
