"""What libraries take from ``torch.utils._python_dispatch``; ``__torch_dispatch__`` itself is not asked here."""

from __future__ import annotations


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether ``t`` says how it is taken apart into tensors and put together."""
    return hasattr(t, "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
