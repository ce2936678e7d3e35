"""Fourier transforms: their meaning and their loops."""
