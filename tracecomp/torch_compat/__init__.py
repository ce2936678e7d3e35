"""tracecomp as torch: programs and libraries written for PyTorch run unmodified.

``as_torch()`` does it for a process and its children, ``python -m tracecomp run`` for a script, and ``python -m
tracecomp torch install`` for an environment. All three add one folder with the distribution ``torch`` to the import
path. Its package installs a finder that resolves ``torch.x.y`` to ``tracecomp.x.y``, the same object.
"""

from tracecomp.torch_compat.activate import activate, as_torch

__all__ = ["activate", "as_torch"]
