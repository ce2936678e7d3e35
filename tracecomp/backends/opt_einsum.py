"""The names of ``torch.backends.opt_einsum``: ``einsum`` contracts from left to right."""

from tracecomp.backends.settings import flags_of, no

enabled = False
strategy: str | None = None
is_available = no
flags = flags_of(globals())
