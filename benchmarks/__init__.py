"""Benchmarks of tracecomp and the engines a user would choose instead. ``python -m benchmarks --help``."""
