"""Reductions over unmasked elements, under the names of ``torch.masked``."""

from tracecomp.functional import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["masked"])
