"""Special functions under the names of ``torch.special``."""

from tracecomp.base.patches import observe as _observe
from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["special"])
_observe(__name__)
