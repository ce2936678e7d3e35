"""Optimizers under the names of torch.optim."""

from tracecomp.base.reference import document as _document
from tracecomp.optim import lr_scheduler, swa_utils
from tracecomp.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tracecomp.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from tracecomp.optim.lbfgs import LBFGS
from tracecomp.optim.muon import Muon
from tracecomp.optim.optimizer import Optimizer
from tracecomp.optim.sgd import ASGD, SGD, Rprop

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "lr_scheduler", "swa_utils",
]  # fmt: skip

_document("optim", globals())
