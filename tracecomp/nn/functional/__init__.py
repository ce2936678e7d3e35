"""The layers as functions, under the names of torch.nn.functional."""

from tracecomp.base.patches import observe as _observe
from tracecomp.functional import NAMESPACES as _NAMESPACES
from tracecomp.nn.functional import (
    activation,
    adaptive,
    attention,
    classification,
    conv,
    linear,
    loss,
    norm,
    padding,
    pooling,
    resize,
    vision,
)

__all__ = [  # published names become public below, even if a module shares a function's name
    "activation", "adaptive", "attention", "classification", "conv", "linear", "loss", "norm", "padding", "pooling",
    "resize", "vision",
]  # fmt: skip

globals().update(_NAMESPACES["nn.functional"])
_observe(__name__)
