"""Automatic differentiation with PyTorch's interface."""

from tracecomp.autograd.anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from tracecomp.autograd.api import backward, grad
from tracecomp.modes import enable_grad, grad_enabled, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "backward", "detect_anomaly", "enable_grad", "grad", "grad_enabled", "inference_mode", "is_anomaly_enabled",
    "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
