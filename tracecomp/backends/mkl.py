"""The names of ``torch.backends.mkl``, which is not available."""

from tracecomp.backends.settings import no

is_available = no
