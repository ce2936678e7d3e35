"""Covariances, histograms, and reductions over what a mask leaves."""
