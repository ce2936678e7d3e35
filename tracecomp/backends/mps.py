"""The names of ``torch.backends.mps``, which is not there."""

from tracecomp.backends.settings import no

is_available = is_built = no


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: this is asked for a device that is not there."""
    return False
