"""Names that libraries import from ``torch._functorch.vmap``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tracecomp._C._functorch import _add_batch_dim, _remove_batch_dim
from tracecomp._C._functorch import _remove_batch_dim as _maybe_remove_batch_dim
from tracecomp.eager.tensor import Tensor
from tracecomp.func.vmap import vmap
from tracecomp.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "Tensor", "_add_batch_dim", "_broadcast_to_and_flatten", "_get_name", "_maybe_remove_batch_dim",
    "_remove_batch_dim", "tree_flatten", "tree_unflatten", "vmap",
]  # fmt: skip


def _get_name(func: Callable[..., object]) -> str:
    """The name of ``func`` in messages."""
    if isinstance(func, partial):
        return f"functools.partial({_get_name(func.func)}, ...)"
    return getattr(func, "__name__", repr(func))
