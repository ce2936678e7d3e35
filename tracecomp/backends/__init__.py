"""The settings of ``torch.backends`` that programs assign: accepted, without effect here."""

from tracecomp.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, nnpack, openmp, opt_einsum, quantized

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized"]
fp32_precision = "none"
