"""Linear algebra under the names of ``torch.linalg``."""

from tracecomp.base.patches import observe as _observe
from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["linalg"])
_observe(__name__)
