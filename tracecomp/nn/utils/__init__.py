"""Helpers for modules and parameters under the names of torch.nn.utils."""

from tracecomp.nn.utils import rnn

__all__ = ["rnn"]
