"""tracecomp in the place of torch: programs and libraries written for PyTorch run unmodified.

``as_torch()`` does it for a process and its children, ``python -m tracecomp run`` for a script, and
``python -m tracecomp torch install`` for an environment. All three put one folder with the distribution ``torch`` on
the import path; its package hands over to a finder for which ``torch.x.y`` is ``tracecomp.x.y``, the same object.
"""

from tracecomp.torch_compat.activate import activate, as_torch

__all__ = ["activate", "as_torch"]
