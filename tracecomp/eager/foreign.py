"""Tensors of PyTorch in a process that has both packages: what takes them, and what refuses them with the remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_pytorchs
from tracecomp.eager.tensor_base import TensorBase
from tracecomp.ir.types import bfloat16

Array = np.ndarray[Any, Any]
_CONSTRUCTORS = frozenset({"tensor", "as_tensor", "asarray", "new_tensor", "from_dlpack"})
"""Functions that make tensors of this package of others."""


def is_foreign(kind: type) -> bool:
    """Whether ``kind`` is PyTorch's tensor class, or derived from it. Their metaclass tells: ours are plain classes."""
    return type(kind) is not type and is_pytorchs(type(kind)) and not issubclass(kind, TensorBase)


def check_takes(name: str, kinds: Iterable[type]) -> None:
    """TypeError where a function other than a constructor is given tensors of PyTorch."""
    if name not in _CONSTRUCTORS and any(map(is_foreign, kinds)):
        raise TypeError(
            f"{name}(): an argument is a tensor of PyTorch, not of tracecomp. Convert it with tracecomp.from_dlpack(x)"
        )


def taken(data: Any) -> Any:
    """``data`` with arrays over the memory of PyTorch's tensors in their place, in lists too."""
    if isinstance(data, list | tuple) and any(isinstance(x, list | tuple) or is_foreign(type(x)) for x in data):
        return [taken(x) for x in data]
    return array_over(data) if is_foreign(type(data)) else data


def array_over(x: Any) -> Array:
    """The memory of a tensor of PyTorch. TypeError for one that has none here: on another device, or sparse."""
    if x.device.type != "cpu":
        raise TypeError(f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy it first")
    if str(x.layout) != "torch.strided":
        raise TypeError(f"can't convert a tensor of layout {x.layout}. Use Tensor.to_dense() first")
    x = x.detach().resolve_conj().resolve_neg()
    if str(x.dtype) == "torch.bfloat16":  # numpy has no such type
        found: Array = x.view(sys.modules["torch"].int16).numpy().view(bfloat16.numpy)
        return found
    found = x.numpy()
    return found
