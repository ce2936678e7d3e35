"""Fourier transform helpers under the names of ``torch.fft``."""

from tracecomp.base.patches import observe as _observe
from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["fft"])
_observe(__name__)
