"""The scripts by name. A script takes ``compile`` and returns its results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp import nn

Script = Callable[[Callable[[Any], Any]], Any]
SCRIPTS: dict[str, Script] = {}


def script(fn: Script) -> Script:
    """Add a script under its name; the first line of its docstring describes it."""
    assert fn.__name__ not in SCRIPTS, fn.__name__
    SCRIPTS[fn.__name__] = fn
    return fn


def data(*shape: int, seed: int = 0) -> Any:
    """Normal numbers."""
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def labels(high: int, *shape: int, seed: int = 0) -> Any:
    """Integers below ``high``."""
    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape))


def mlp(*sizes: int) -> Any:
    """Linear layers with tanh between them."""
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])
