"""Special functions under the names of ``torch.special``."""

from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["special"])
