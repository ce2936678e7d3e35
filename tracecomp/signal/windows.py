"""Window functions under the names of ``torch.signal.windows``."""

from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["signal.windows"])
