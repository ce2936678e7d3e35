"""The names of ``torch.backends.openmp``, which is not there."""

from tracecomp.backends.settings import no

is_available = no
