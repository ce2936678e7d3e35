"""The settings of ``torch.backends`` that programs assign: accepted, without effect here."""

from collections.abc import Iterator
from contextlib import contextmanager

from tracecomp.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, nnpack, openmp, opt_einsum, quantized

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized"]
fp32_precision = "none"


def disable_global_flags() -> None:
    """Nothing: settings may be made at any time, as they have no effect here."""


def flags_frozen() -> bool:
    """Whether settings are closed to assignments: never."""
    return False


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """Nothing: see ``disable_global_flags``."""
    yield
