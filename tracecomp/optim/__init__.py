"""Optimizers under the names of torch.optim."""

import sys

from tracecomp.base.reference import document as _document
from tracecomp.optim import adam, adaptive, lr_scheduler, sgd, swa_utils
from tracecomp.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from tracecomp.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from tracecomp.optim.lbfgs import LBFGS
from tracecomp.optim.muon import Muon
from tracecomp.optim.optimizer import Optimizer
from tracecomp.optim.sgd import ASGD, SGD, Rprop
from tracecomp.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip

# torch's file names: ``torch.optim.adamw.AdamW``.
_FILES = {
    "adadelta": adaptive, "adagrad": adaptive, "adamax": adam, "adamw": adam, "asgd": sgd, "nadam": adam, "radam": adam,
    "rmsprop": adaptive, "rprop": sgd,
}  # fmt: skip
_document("optim", globals())
globals().update(_FILES)
sys.modules.update({f"{__name__}.{name}": file for name, file in _FILES.items()})
