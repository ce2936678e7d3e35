"""Data loading, hooks, checkpoints, nested containers under the names of torch.utils."""

from tracecomp.base.lazy_names import later as _later
from tracecomp.utils import _contextlib, _python_dispatch, _pytree, checkpoint, hooks
from tracecomp.utils.swapping import swap_tensors

__getattr__ = _later(__name__, {name: name for name in ("benchmark", "bottleneck", "data", "dlpack")})

__all__ = ["_contextlib", "_python_dispatch", "_pytree", "benchmark", "checkpoint", "data", "hooks", "swap_tensors"]
