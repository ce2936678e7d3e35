"""The files of torch.nn.modules by their names there: ``nn.modules.batchnorm._BatchNorm`` and the like."""

from __future__ import annotations

import sys

from tracecomp.nn import (
    activation,
    containers,
    conv,
    dropout,
    embedding,
    lazy,
    linear,
    loss,
    module,
    norm,
    padding,
    pooling,
    rnn,
    shape,
    sizes,
    transformer,
)  # fmt: skip

_FILES = {
    "activation": activation, "batchnorm": norm, "container": containers, "conv": conv, "dropout": dropout,
    "instancenorm": norm, "lazy": lazy, "linear": linear, "loss": loss, "module": module, "normalization": norm,
    "padding": padding, "pooling": pooling, "rnn": rnn, "sparse": embedding, "flatten": shape, "pixelshuffle": shape,
    "transformer": transformer, "utils": sizes,
}  # fmt: skip

__path__: list[str] = []  # a package to importers, whose modules are those below
for _file in _FILES.values():
    globals().update({k: v for k, v in vars(_file).items() if isinstance(v, type) and issubclass(v, module.Module)})
globals().update(_FILES)
sys.modules.update({f"{__name__}.{name}": file for name, file in _FILES.items()})
