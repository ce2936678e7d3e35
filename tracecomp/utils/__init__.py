"""Data loading, saving, hooks under the names of torch.utils."""

from tracecomp.utils import data, hooks

__all__ = ["data", "hooks"]
