"""The names of ``torch.backends.mkldnn``, which is not available."""

from tracecomp.backends.settings import flags_of, no

enabled = deterministic = allow_tf32 = False
is_available = no
flags = flags_of(globals())
