"""The settings of ``torch.backends``, accepted without effect."""

from tracecomp.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, nnpack, openmp, opt_einsum, quantized

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized"]
fp32_precision = "none"


def disable_global_flags() -> None:
    """Do nothing: settings have no effect here."""


def flags_frozen() -> bool:
    """Return False: settings can always be assigned."""
    return False
