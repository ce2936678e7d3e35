"""Tests of torch.fx."""
