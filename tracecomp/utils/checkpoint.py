"""Activation checkpointing, where PyTorch keeps it."""

from tracecomp.autograd.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential"]
