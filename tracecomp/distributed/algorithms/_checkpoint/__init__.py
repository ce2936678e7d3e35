"""Modules that compute their activations again in the backward pass."""
