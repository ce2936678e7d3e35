"""One step of an optimizer on lists of tensors, under the names of torch.optim._functional."""

from tracecomp.optim.adam import adam, adamw
from tracecomp.optim.sgd import sgd

__all__ = ["adam", "adamw", "sgd"]
