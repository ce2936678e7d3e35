"""Fourier transform helpers under the names of ``torch.fft``."""

from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["fft"])
