"""Automatic differentiation with PyTorch's interface."""

from tracecomp.autograd.anomaly import detect_anomaly, set_detect_anomaly
from tracecomp.autograd.api import backward, grad
from tracecomp.autograd.function import Function, FunctionCtx, once_differentiable
from tracecomp.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tracecomp.autograd.variable import Variable
from tracecomp.base.lazy_names import later as _later
from tracecomp.eager.modes import enable_grad, grad_enabled, inference_mode, no_grad, set_grad_enabled
from tracecomp.functional.settings import is_anomaly_check_nan_enabled, is_anomaly_enabled

__getattr__ = _later(
    __name__,
    {name: name for name in ("forward_ad", "functional", "graph", "profiler")}
    | dict.fromkeys(("_profiler_enabled", "_disable_profiler"), "profiler"),
)

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad",
    "forward_ad", "functional", "grad",
    "grad_enabled", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "no_grad",
    "once_differentiable", "profiler", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
