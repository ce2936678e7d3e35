"""Libraries written for PyTorch, run on tracecomp and compared with PyTorch: ``python -m tests.ecosystem --help``."""
