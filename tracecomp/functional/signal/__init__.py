"""Fourier transforms, spectra and windows."""
