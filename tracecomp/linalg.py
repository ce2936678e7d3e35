"""Linear algebra under the names of ``torch.linalg``."""

from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["linalg"])
