"""Activation checkpointing, where PyTorch keeps it."""

from tracecomp.autograd.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, noop_context_fn

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn"]
