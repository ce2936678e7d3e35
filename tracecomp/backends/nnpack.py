"""The names of ``torch.backends.nnpack``, which is not there."""

from tracecomp.backends.settings import flags_of, no

is_available = no
flags = flags_of(globals())


def set_flags(_enabled: bool) -> tuple[bool]:
    """Noted; returns what was set before."""
    return (False,)
