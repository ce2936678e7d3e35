"""Data loading, saving, hooks, checkpoints under the names of torch.utils."""

from tracecomp.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
