"""Fourier transforms: what they mean and their loops."""
