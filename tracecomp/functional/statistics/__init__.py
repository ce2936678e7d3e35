"""Covariances, histograms, and reductions of masked tensors."""
