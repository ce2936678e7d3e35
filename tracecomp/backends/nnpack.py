"""The names of ``torch.backends.nnpack``, which is not available."""

from tracecomp.backends.settings import flags_of, no

is_available = no
flags = flags_of(globals())


def set_flags(_enabled: bool) -> tuple[bool]:
    """Store the flag; return the old one."""
    return (False,)
